r"""NeMo Gym's own reading of a response's choice, right or wrong: for `compat: nemo` alone.

Invariant: every function takes time linear in the text, but for `by_patterns`, whose patterns
come with the task: run that one where it can be killed.

Modes:
strict_single_letter_boxed: the last ``\boxed{}`` holds one capital letter and no other.
lenient_boxed: as above; else the box contains the text of exactly one option.
lenient_answer_colon: the first "Answer: …" is a letter, or the text of an option.
lenient_answer_colon_md: the last "Answer: …" from which one letter can be read, in Markdown or
    brackets or at the head of a sentence; a list of letters is no answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from gymmesh_resource.environments._latex import without_text
from gymmesh_resource.environments.mcqa.question import (
    LAST_LINE,
    LETTERS,
    ChoiceQuestion,
    ReadingMode,
    last_box,
)

# Characters that are read after a task's own answer prefix, which may come often in a line.
PAYLOAD: Final = 1_000

_LONE_CAPITAL = re.compile(r"[^A-Za-z]*([A-Z])[^A-Za-z]*")
_LABEL = re.compile(r"\s*([A-Z])\s*[:).\-]")
_ANSWER = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_PAYLOAD = re.compile(r"answer[*_]{0,2}\s*:[*_\s]{0,2}(.+)", re.IGNORECASE)
_LONE_LETTER = re.compile(r"(?<![A-Za-z])([A-Za-z])(?![A-Za-z])")
_LIST_GAP = re.compile(r"\s*[/|&,;]\s*|\s+(?:or|and)\s+|\s+", re.IGNORECASE)
_HEAD_LETTER = re.compile(r"([A-Za-z])(?![A-Za-z0-9])")
_CAPITAL_WORD = re.compile(r"\b[A-Z]\b")


def choose(
    text: str,
    question: ChoiceQuestion,
    mode: ReadingMode,
    *,
    label_in_box: bool = False,
    answer_prefix: str = "",
) -> str | None:
    r"""The letter that a response chose, or None.

    `label_in_box`: whether ``\boxed{C: its text}`` chooses C in the boxed modes.
    `answer_prefix`: in lenient_answer_colon_md, what may stand in place of "Answer:".
    """
    match mode:
        case "strict_single_letter_boxed":
            return _boxed_letter(text, question, label_in_box)
        case "lenient_boxed":
            return _boxed_letter(text, question, label_in_box) or _boxed_option(text, question)
        case "lenient_answer_colon":
            return _after_colon(text, question)
        case "lenient_answer_colon_md":
            letter = _from_payloads(text, question, answer_prefix)
            if letter is None and answer_prefix:
                return _boxed_letter(text, question, label_in_box)
            return letter


def by_patterns(text: str, patterns: Sequence[str], options: Mapping[str, str]) -> str | None:
    """The letter found by the first of a task's own patterns that finds any; its last match.

    A pattern's first group (or the whole match) is a letter, trusted even where it is none of
    the options, or an option's text. A broken pattern finds nothing.
    """
    question = ChoiceQuestion(list(options.items()))
    for pattern in patterns:
        try:
            matches = list(re.finditer(pattern, text, re.IGNORECASE))
        except (re.error, OverflowError, RecursionError, MemoryError):
            continue
        if not matches:
            continue
        found = matches[-1].group(1 if matches[-1].re.groups else 0) or ""
        captured = _normalized(found).upper()
        is_letter = len(captured) == 1 and captured.isalpha()
        letter = captured if is_letter else question.with_text(captured)
        if letter is not None:
            return letter
    return None


def _boxed_letter(text: str, question: ChoiceQuestion, label_in_box: bool) -> str | None:
    inner = last_box(text)
    if inner is None:
        return None
    found = _LONE_CAPITAL.fullmatch(inner)
    if found is None and label_in_box:
        found = _LABEL.match(inner)
    letter = found.group(1) if found else None
    return letter if letter in question.letters else None


def _boxed_option(text: str, question: ChoiceQuestion) -> str | None:
    inner = last_box(text)
    if inner is None:
        return None
    box = _plain(inner)
    letters = {letter for letter, option in question.options if (o := _plain(option)) and o in box}
    return letters.pop() if len(letters) == 1 else None


def _after_colon(text: str, question: ChoiceQuestion) -> str | None:
    found = _ANSWER.search(text)
    if found is None:
        return None
    candidate = without_text(found.group(1)).strip()
    if len(candidate) == 1 and candidate.upper() in question.letters:
        return candidate.upper()
    return question.with_text(candidate)


def _from_payloads(text: str, question: ChoiceQuestion, prefix: str) -> str | None:
    text = unicodedata.normalize("NFKC", text)
    found = [(match.start(), match.group(1)) for match in _PAYLOAD.finditer(text)]
    if prefix:
        marker = re.compile(re.escape(unicodedata.normalize("NFKC", prefix)) + r"\s*", re.I)
        for match in marker.finditer(text):
            rest = text[match.end() : match.end() + PAYLOAD]
            found.append((match.start(), rest.partition("\n")[0]))
    for _, payload in sorted(found, reverse=True):
        letter = _letter_of(payload, question.letters)
        if letter is not None:
            return letter
    last_line = LAST_LINE.fullmatch(text.rstrip().rpartition("\n")[2])
    letter = last_line.group(1).upper() if last_line else None
    return letter if letter in question.letters else None


def _letter_of(payload: str, letters: frozenset[str]) -> str | None:
    """The one letter that the words after "Answer:" name."""
    candidate = _normalized(payload).strip("*_` \t\n\r.,;:")
    if _is_list(candidate, letters):
        return None
    if len(candidate) == 1:
        letter = candidate
    elif head := _HEAD_LETTER.match(candidate):
        letter = head.group(1)
    else:
        words = _CAPITAL_WORD.findall(candidate)
        letter = words[-1] if words else ""
    return letter.upper() if letter.upper() in letters else None


def _is_list(text: str, letters: frozenset[str]) -> bool:
    """Whether different options stand side by side, as in "A/B" or "A or B"."""
    found = [match for match in _LONE_LETTER.finditer(text) if match.group().upper() in letters]
    return any(
        left.group().upper() != right.group().upper()
        and _LIST_GAP.fullmatch(text, left.end(), right.start())
        for left, right in pairwise(found)
    )


def _normalized(text: str) -> str:
    """Text with the letters of other scripts as A to D, and in compatible characters."""
    return unicodedata.normalize("NFKC", text).translate(LETTERS).strip()


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
