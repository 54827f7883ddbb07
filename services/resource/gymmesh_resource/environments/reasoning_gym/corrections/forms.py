"""Answers in other usual forms: with marks around them, of one number, of words. Pure."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Final

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_DIGITS: Final = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_GROUPED: Final = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
# Words alone: no digits and no signs, whose case and order may say something.
_WORDS: Final = re.compile("""(?:[^\\W\\d_]|[ ,.'’"“”()!?;:…—–-])+""")
_WORD: Final = re.compile(r"[^\W\d_]{2}")
_LONGEST: Final = 2_000
_FENCE: Final = re.compile(
    r"(?P<mark>`{3,9}|~{3,9})[^\S\n]*[\w+-]*[^\S\n]*\n(?P<inside>.*)(?P=mark)", re.DOTALL
)
_MARKS: Final = (
    ("**", "**"), ("__", "__"), ("*", "*"), ("`", "`"), ("$$", "$$"), ("$", "$"), ("\\(", "\\)"),
    ("\\[", "\\]"), ("\\text{", "}"), ('"', '"'), ("'", "'"), ("“", "”"),
)  # fmt: skip
_LAYERS: Final = 3
# Characters of an answer that may be a grid.
_GRID: Final = 20_000
_OTHER_DIGITS: Final = str.maketrans("０１２３４５６７８９−", "0123456789-")


def bare(answer: str, expected: str) -> str:
    """The answer without what only notation puts there: a fence, emphasis or quotes around the
    whole, spaces at the ends of lines, full-width digits; but for what the expected one has, too.
    """
    if len(answer) > _GRID:
        return answer
    text, wanted = answer.strip(), expected.strip()
    if text == wanted:
        return answer
    if wanted.isascii():
        text = text.translate(_OTHER_DIGITS)
    for _ in range(_LAYERS):
        inside = _unmarked(text, wanted)
        if inside is None:
            break
        text = inside.strip()
    return _with_plain_lines(text) if wanted == _with_plain_lines(wanted) else text


def _unmarked(text: str, wanted: str) -> str | None:
    """What stands within a fence or marks around the whole text; None without any."""
    fence = _FENCE.fullmatch(text)
    if fence and fence["mark"] not in fence["inside"]:
        return fence["inside"]
    for left, right in _MARKS:
        if not text.startswith(left) or not text.endswith(right) or wanted.startswith(left):
            continue
        inside = text[len(left) : len(text) - len(right)]
        if inside and left not in inside and right not in inside:
            return inside
    return None


def _with_plain_lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


def as_expected(answer: str, expected: str) -> str:
    """The expected answer, where the answer is the same number or the same words; else the answer.

    A number may have digits and a minus of another form, a dot or zeros at its end, and separated
    thousands; words may differ in case, in spaces, in composed letters and by a dot at their end.
    """
    if len(answer) > _LONGEST or len(expected) > _LONGEST:
        return answer
    given, wanted = answer.strip(), expected.strip()
    if wanted in (given, given.removesuffix(".").rstrip()) or same_number(given, expected):
        return expected
    of_words = _WORDS.fullmatch(wanted) and _WORD.search(wanted)
    if not of_words or _plain(given) != _plain(wanted):
        return answer
    # Words that differ by their case alone, such as "the" and "The", may be in another order.
    said, right = re.findall(r"\w+", given), re.findall(r"\w+", wanted)
    return answer if said != right and sorted(said) == sorted(right) else expected


def same_number(answer: str, expected: str) -> bool:
    """Whether an answer is the expected number, written otherwise."""
    if _NUMBER.fullmatch(expected) is None:
        return False
    plain = unicodedata.normalize("NFKC", answer).strip().replace("−", "-").removesuffix(".")
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    return _DIGITS.fullmatch(plain) is not None and Decimal(plain) == Decimal(expected)


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).replace("’", "'").casefold()
    return " ".join(folded.split()).removesuffix(".")
