r"""Which option a response chose. Pure.

Invariant: every function takes time linear in the text, but for `by_patterns`, whose patterns
come with the task: run that one where it can be killed.

These are not a choice: a negated letter or option, several letters or options side by side, a label
with the text of another option, and words such as "A" and "I" in a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

from gymmesh_resource.environments._plain_text import plain
from gymmesh_resource.environments._quantities import quantity
from gymmesh_resource.environments.mcqa.question import (
    LETTERS,
    LOCALIZED,
    ChoiceQuestion,
    ReadingMode,
    last_box,
)
from gymmesh_resource.environments.mcqa.sentences import Named, affirmed

# Characters that are read after a task's own answer prefix, which may come often in a line.
PAYLOAD: Final = 1_000
# Characters of a response that are read, its last: reading holds up the other rollouts.
_READ: Final = 200_000
# Characters beside a letter that say whether it is meant.
_BESIDE: Final = 60
# Tokens of an option's text, and of a box, that are looked for in each other.
_TOKENS: Final = 200

_ALONE = re.compile(
    r"""[\s("'\[{<]*(?:(?:option|choice|letter|answer)\s*:?\s*[("'\[]?)?([A-Za-z])[\s)"'\]}>.,:;]*""",
    re.IGNORECASE,
)
_CALLED_SO = r"\s*(?:(?i:option|choice|letter|answer)\s*:?\s*)?"
_LABEL = re.compile(
    _CALLED_SO + r"[(\[]?([A-Z])[)\]]?(?:\s*[:).,\]\-]\s*|\s+)(?=\S)(.*)", re.DOTALL
)
_TEXT_FIRST = re.compile(r"(.*\S)\s*[(\[]([A-Z])[)\]]", re.DOTALL)
_MARKED_LABEL = re.compile(_CALLED_SO + r"[(\[]?([A-Z])\s*[:).\]\-]\s*(?=\S)(.*)", re.DOTALL)
_ANSWER = re.compile(r"answer[*_]{0,3}\s*:[*_]{0,3}\s*(.+)", re.IGNORECASE)
_IN_OTHER_LANGUAGES = re.compile(LOCALIZED + r"[*_]{0,2}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)
# What ends a sentence of other scripts.
_STOPS: Final = "।。．"
_PAYLOAD = re.compile(r"answer[*_]{0,2}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)

_MENTION = re.compile(r"(?<![A-Za-z0-9'])([A-Z])(?![A-Za-z0-9'#+])")
_WORD_AFTER = re.compile(r"\s+([a-z]+)")
_CALLED = re.compile(r"(?:option|choice|letter|answer)\s+\Z", re.IGNORECASE)
_CONNECTIVES: Final = frozenset(
    {"because", "since", "as", "is", "are", "was", "for", "due", "given", "but", "and", "or", "nor",
     "which", "with", "where", "seems"}
)  # fmt: skip
# Behind an I that is a letter; "I was" and "I for one" are words.
_AFTER_I: Final = frozenset({"because", "since", "is", "and", "or", "nor", "but", "seems"})
_TOKEN = re.compile(r"\w+(?:['.,]\w+)*|[^\w\s]")


def choose(
    text: str,
    question: ChoiceQuestion,
    mode: ReadingMode,
    *,
    label_in_box: bool = False,
    answer_prefix: str = "",
) -> str | None:
    r"""The letter that a response chose, or None.

    `label_in_box`: whether ``\boxed{C: its text}`` chooses C in the strict boxed mode.
    `answer_prefix`: in lenient_answer_colon_md, what may stand in place of "Answer:".
    """
    text = text[-_READ:]
    match mode:
        case "strict_single_letter_boxed":
            return _boxed(last_box(text), question, label_in_box)
        case "lenient_boxed":
            inner = last_box(text)
            return _boxed(inner, question, label_in_box) or _boxed_option(inner, question)
        case "lenient_answer_colon":
            return _after_colon(text, question)
        case "lenient_answer_colon_md":
            letter = _from_payloads(text, question, answer_prefix)
            if letter is None and answer_prefix:
                return _boxed(last_box(text), question, label_in_box)
            return letter


def by_patterns(text: str, patterns: Sequence[str], options: Mapping[str, str]) -> str | None:
    """The letter found by the first of a task's own patterns that finds any; its last match.

    A pattern's first group (or the whole match) is a letter, trusted even where it is none of
    the options, or an option's text. A letter inside a word is not one. A broken pattern finds
    nothing.
    """
    question = ChoiceQuestion(list(options.items()))
    for pattern in patterns:
        try:
            matches = list(re.finditer(pattern, text, re.IGNORECASE))
        except (re.error, OverflowError, RecursionError, MemoryError):
            continue
        for match in reversed(matches):
            group = 1 if match.re.groups else 0
            if match.group(group) is None or _cuts_a_word(text, *match.span(group)):
                continue
            found = _normal(match.group(group))
            letter = _alone(found) or question.named_by(found)
            if letter is not None:
                return letter
            break
    return None


def _cuts_a_word(text: str, start: int, end: int) -> bool:
    """Whether what was found goes on to its left or right as a word in Latin letters."""
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    return _joined(before, text[start : start + 1]) or _joined(text[end - 1 : end], after)


def _joined(left: str, right: str) -> bool:
    return all(one.isascii() and one.isalnum() for one in (left, right) if one) and bool(
        left and right
    )


def _boxed(inner: str | None, question: ChoiceQuestion, label_in_box: bool) -> str | None:
    if inner is None:
        return None
    letter = _alone(inner) or _alone(inner := _normal(inner))
    if letter is None and label_in_box and (found := _MARKED_LABEL.fullmatch(inner)):
        named = _option_in(found[2], question)
        letter = found[1] if named in (None, found[1]) else None
    return letter if letter in question.letters else None


def _boxed_option(inner: str | None, question: ChoiceQuestion) -> str | None:
    if inner is None:
        return None
    text = _normal(inner)
    return _option_in(text, question) or _letter_of(text, question)


def _option_in(text: str, question: ChoiceQuestion) -> str | None:
    """The one option that a text names: by its own text, with its label, or among other words."""
    named = question.named_by(text) or _labelled(text, question)
    if named is not None or quantity(text) is not None:
        return named  # of another number than the options', "< 100", nothing is looked for in it
    label = _MARKED_LABEL.fullmatch(text)
    if label is not None and label[1] in question.letters:
        named = question.named_by(label[2]) or _contained(label[2], question)
        return named if named == label[1] else None
    return _contained(text, question)


def _labelled(text: str, question: ChoiceQuestion) -> str | None:
    """The letter of an option that stands there with its text, before or behind it."""
    if (found := _TEXT_FIRST.fullmatch(text)) is not None:
        return found[2] if question.named_by(found[1]) == found[2] else None
    found = _LABEL.fullmatch(text)
    if found is None:
        return None
    beside = found[2]
    if beside.startswith("(") and beside.endswith(")"):
        beside = beside[1:-1].strip()
    return found[1] if question.named_by(beside) == found[1] else None


def _contained(text: str, question: ChoiceQuestion) -> str | None:
    """The one option that a sentence affirms by its text, word by word and in no longer option."""
    text = text.casefold()
    tokens = list(islice(_TOKEN.finditer(text), _TOKENS))
    words = [token.group() for token in tokens]
    spans = sorted(
        (start, end, letter)
        for letter, option in question.options
        for start, end in _places(words, _words_of(option))
    )
    spans = [
        one
        for one in spans
        if not any(
            o[0] <= one[0] and one[1] <= o[1] and o[1] - o[0] > one[1] - one[0] for o in spans
        )
    ]
    if any(one[1] > other[0] for one, other in pairwise(spans)):
        return None  # two options share words, or one text
    named = [Named(one, tokens[start].start(), tokens[end - 1].end()) for start, end, one in spans]
    return affirmed(text, named, own={})


@lru_cache(1024)
def _words_of(option: str) -> list[str]:
    return _TOKEN.findall(plain(option).casefold())[:_TOKENS]


def _places(words: Sequence[str], part: Sequence[str]) -> Iterator[tuple[int, int]]:
    size = len(part)
    if not part or part[0] not in words:
        return
    for start in range(len(words) - size + 1):
        if words[start] == part[0] and words[start : start + size] == part:
            yield start, start + size


def _after_colon(text: str, question: ChoiceQuestion) -> str | None:
    for found in reversed(list(_ANSWER.finditer(unicodedata.normalize("NFKC", text)))):
        candidate = _unmarked(found[1])
        letter = _alone(candidate) or _alone(candidate := _normal(candidate))
        if letter is not None:  # the answer, though it be no option
            return letter if letter in question.letters else None
        letter = _letter_of(candidate, question)
        if letter in question.letters:
            return letter
    return None


def _from_payloads(text: str, question: ChoiceQuestion, prefix: str) -> str | None:
    text = unicodedata.normalize("NFKC", text)
    found = [
        (match.start(), match.group(1).rstrip(_STOPS))
        for marker in (_PAYLOAD, _IN_OTHER_LANGUAGES)
        for match in marker.finditer(text)
    ]
    if prefix:
        marker = re.compile(re.escape(unicodedata.normalize("NFKC", prefix)) + r"\s*", re.I)
        for match in marker.finditer(text):
            rest = text[match.end() : match.end() + PAYLOAD]
            found.append((match.start(), rest.partition("\n")[0]))
    for _, payload in sorted(found, reverse=True):
        payload = _unmarked(payload)
        letter = _alone(payload) or _alone(normal := _normal(payload))
        if letter is not None:  # the answer, though it be no option
            return letter if letter in question.letters else None
        letter = _letter_of(normal, question)
        if letter in question.letters:
            return letter
    return None


def _letter_of(text: str, question: ChoiceQuestion) -> str | None:
    """The one letter that words in a box or after "Answer:" name."""
    letters = question.letters
    letter = _alone(text) or question.named_by(text) or _labelled(text, question)
    if letter is not None:
        return letter if letter in letters else None
    lower = re.match(r"[(\[]?([a-z])(?:[)\].:,;]|\s+(?:because|since|as)\b)", text)
    if lower and lower[1].upper() in letters:
        text = text[: lower.start(1)] + lower[1].upper() + text[lower.end(1) :]
    mentions = _mentions(text, letters)
    if not mentions:
        return _contained(text, question)
    if _lists_options(text, mentions, question):
        return None
    own = {letter: plain(option).casefold() for letter, option in question.options}
    return affirmed(text, mentions, own=own)


def _mentions(text: str, letters: frozenset[str]) -> list[Named]:
    """The options' letters in a text, without those that are words of its sentences."""
    found: list[Named] = []
    for match in _MENTION.finditer(text):
        letter, start, end = match[1], match.start(), match.end()
        before, after = text[max(start - _BESIDE, 0) : start], text[end : end + _BESIDE]
        if letter in letters and not (letter in "AI" and _is_word(letter, before, after)):
            found.append(Named(letter, start, end))
    return found


def _lists_options(text: str, mentions: Sequence[Named], question: ChoiceQuestion) -> bool:
    """Whether another option stands there with its text ("A: Venus, B: Mercury"), or the first
    letter with the text of another.
    """
    first = mentions[0]
    other = question.named_by(text[first.end :].lstrip(" )]*_.:,;-"))
    return other not in (None, first.letter) or any(
        _MARKED_LABEL.match(text, one.start) and _begins_with(text[one.end :], one.letter, question)
        for one in mentions[1:]
        if one.letter != first.letter
    )


def _is_word(letter: str, before: str, after: str) -> bool:
    """Whether an A or I is the word of a sentence, as in "A good match" and "I think"."""
    following = _WORD_AFTER.match(after)
    connectives = _AFTER_I if letter == "I" else _CONNECTIVES
    if following is None or following[1] in connectives:
        return False
    return not _CALLED.search(before)


def _begins_with(text: str, letter: str, question: ChoiceQuestion) -> bool:
    """Whether the option's own text is what follows its label."""
    rest = text[:PAYLOAD].lstrip(" ):.]-").casefold()
    own = (plain(option).casefold() for one, option in question.options if one == letter)
    return any(map(rest.startswith, own))


def _alone(text: str) -> str | None:
    """The letter that the whole text is. C' is another one than C, which 'C' is."""
    found = _ALONE.fullmatch(text) if len(text) <= _BESIDE else None
    if found is None:
        return None
    before, after = text[: found.start(1)], text[found.end(1) :]
    primed = any(before.count(mark) != after.count(mark) for mark in "'\"")
    return None if primed else found[1].upper()


def _unmarked(text: str) -> str:
    """Without the emphasis that began before "Answer:", and what is left of LaTeX around it."""
    return text.strip().strip("*_`").strip()


def _normal(text: str) -> str:
    """Text in plain notation, with the letters of other scripts as A to D."""
    text = plain(text)
    if not text.isascii():
        text = text.translate(LETTERS)
    return text.rstrip("} ").strip()
