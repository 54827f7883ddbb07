"""Whether an answer is the expected one, by its text. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-"})
_EDGES = frozenset(" .,;:!?\"'`*_()[]{}")


def normal(text: str) -> str:
    """Text for comparison: NFKC, casefolded, one space between words, nothing around it.

    What changes a number stays: -5, .5, <5 and 5! are not 5, and 1.5 is not 15.
    """
    folded = unicodedata.normalize("NFKC", text).translate(_QUOTES).casefold()
    said = " ".join(folded.split())
    start, end = 0, len(said)
    while start < end and said[start] in _EDGES and not _point(said, start):
        start += 1
    while start < end and said[end - 1] in _EDGES and not _factorial(said, end - 1):
        end -= 1
    return said[start:end]


def _point(text: str, place: int) -> bool:
    return text[place] == "." and text[place + 1 : place + 2].isdigit()


def _factorial(text: str, place: int) -> bool:
    return text[place] == "!" and text[max(place - 1, 0) : place].isdigit()


def matches(answer: str, expected: Sequence[str], *, contains: bool) -> bool:
    """Whether the answer is one of the expected texts, or `contains` one as whole words."""
    said = normal(answer)
    wanted = [text for text in map(normal, expected) if text]
    if not contains:
        return said in wanted
    return any(re.search(_whole(text), said) for text in wanted)


def _whole(text: str) -> str:
    # Neither part of a longer word, nor of a longer number: 5 is not in 5.1, 1,500, -5 or 15.
    number = text[0].isdigit() or text[-1].isdigit()
    before = r"(?<![\w<>-])(?<![\d ][.,])(?<!^\.)" if number else r"(?<!\w)"
    after = r"(?![.,]?\d)(?![\w!])" if number else r"(?!\w)"
    return before + re.escape(text) + after
