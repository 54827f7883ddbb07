"""Words: names cut and extended, denied or hedged; other usual ways to write them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from gymmesh_audit.answers.orders import digit_orders, swapped
from gymmesh_audit.answers.pattern import matches
from gymmesh_audit.answers.variant import Variant
from gymmesh_audit.gold import ANSWER, Gold, same

_LETTERS = re.compile(r"[^\W\d_][^\d*+/=^()]*")
# Letters that are no factors of a product.
_LETTER_RUN = re.compile(r"(?<![^\W_])[^\W\d_]{2,}(?![^\W_])")
_FORMULA = re.compile(r"[*+/=^()\\]")
_WORD = re.compile(r"[^\W\d_]{2,}", re.UNICODE)
_IDENTIFIER = re.compile(r"[\d_/\\@#=(){}\[\]<>]|[a-z][A-Z]")
# Letters that verifiers strip as units.
_UNITS = ("m", "s", "g", "km")
_MONTHS_DAYS = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_CLOCK = re.compile(r"\b(AM|PM|am|pm)\b")
_QUANTITY = re.compile(r"(?P<number>-?\d+(?:[.,]\d+)?)\s*(?P<unit>[^\W\d_]+(?:/[^\W\d_]+)?)")
_LONG = 400


def is_identifier(text: str) -> bool:
    """Whether capitals and spaces matter, as in codes, paths, dates and formulas."""
    return bool(_IDENTIFIER.search(text)) or (len(text) <= 3 and text.isupper())


def nearly(gold: Gold) -> Iterator[Variant]:
    """Other words that look like the expected words."""
    answer = gold.answer
    if len(answer) > _LONG:
        return
    for unit in _UNITS:
        yield Variant(f"the letter {unit} appended", f"{answer}{unit}")
    if len(answer) > 1:
        last, first = answer[:-1].rstrip(), answer[1:].lstrip()
        if not same(last, answer):
            yield Variant("the last letter cut", last)
        if not same(first, answer):
            yield Variant("the first letter cut", first)
        yield from _other_orders(answer)
    yield from digit_orders(answer)
    yield from matches(answer)
    words = answer.split()
    if len(words) > 1:
        yield Variant("the first word alone", words[0])
        yield Variant("the last word alone", words[-1])
        yield Variant("another last word", " ".join([*words[:-1], "Harbour"]))
    if re.search(r"\d", answer):
        yield Variant("a digit of it changed", _digit_changed(answer))
        glued = re.sub(r"(?<=\d)[, ](?=\d)", "", answer)
        if glued != answer:
            yield Variant("its numbers glued together", glued)
    if found := _QUANTITY.fullmatch(answer):
        other = "m" if found["unit"] != "m" else "km"
        yield Variant("another unit", f"{found['number']} {other}")
        if "/" in found["unit"]:
            yield Variant("another unit per time", f"{found['number']} m/{found['unit'][-1]}")
    if _MONTHS_DAYS.search(answer):
        yield Variant("month and day swapped", _MONTHS_DAYS.sub(r"\1-\3-\2", answer))
    if found_half := _CLOCK.search(answer):
        other = {"AM": "PM", "PM": "AM", "am": "pm", "pm": "am"}[found_half[0]]
        yield Variant("the other half of the day", _CLOCK.sub(other, answer))
    yield Variant("another name beside it", f"{answer} Harbour")
    yield Variant("a doubled answer", f"{answer}{answer}")


def _other_orders(answer: str) -> Iterator[Variant]:
    """Not of formulas, where an order may make no difference."""
    orders: dict[str, str] = {}
    if _LETTERS.fullmatch(answer):
        orders = {
            "two letters swapped": _swapped(answer),
            "read backward": answer[::-1],
            "an anagram": "".join(sorted(answer)),
        }
    elif not _FORMULA.search(answer) and not _QUANTITY.fullmatch(answer):
        changed = _LETTER_RUN.sub(lambda found: "".join(swapped(found[0])), answer, count=1)
        orders = {"two letters swapped": changed}
    for name, changed in orders.items():
        if not same(changed, answer):
            yield Variant(name, changed)


def clothes(gold: Gold) -> Iterator[Variant]:
    """The same words in other forms."""
    answer = gold.answer
    if "\n" in answer:
        yield Variant("a line break after it", f"{answer}\n")
        return
    yield Variant("spaces around it", f"  {answer} ")
    if gold.form != ANSWER:
        yield Variant("after a paragraph", message=f"I thought about it.\n\n{gold.message}\n")
        yield Variant("Windows line ends", message=f"The answer follows.\r\n{gold.message}\r\n")
    else:
        yield Variant("line breaks around it", message=f"\n{gold.message}\n\n")
    if len(answer) > _LONG or is_identifier(answer) or not _WORD.search(answer):
        return
    decomposed = unicodedata.normalize("NFD", answer)
    if decomposed != answer:
        yield Variant("decomposed letters", decomposed)
    if "'" in answer:
        yield Variant("a curly apostrophe", answer.replace("'", "’"))
    if " " in answer:
        yield Variant("a no-break space", answer.replace(" ", "\u00a0", 1))
        yield Variant("two spaces between words", answer.replace(" ", "  ", 1))
    if not answer.endswith((".", "!", "?")):
        yield Variant("a trailing dot", f"{answer}.")
    yield Variant("in capitals", answer.upper())
    yield Variant("in small letters", answer.lower())


def _swapped(answer: str) -> str:
    """Two neighbours in the middle that differ, swapped."""
    for place in range(len(answer) // 2, len(answer) - 1):
        if answer[place].casefold() != answer[place + 1].casefold():
            return answer[:place] + answer[place + 1] + answer[place] + answer[place + 2 :]
    return answer


def _digit_changed(answer: str) -> str:
    place = max(found.start() for found in re.finditer(r"\d", answer))
    return f"{answer[:place]}{(int(answer[place]) + 5) % 10}{answer[place + 1 :]}"
