r"""Finds the calendar in an answer: the last JSON list of objects in its text. Pure.

With `compat: nemo` it is the first list, by NeMo Gym's calendar rule: a regular expression over
`[`, `]`, `{` and `}` only, which ignores quotes: `\[ X \{ X \} X \]`. X is any run of characters
other than square brackets, and of blocks `{…}` up to the next closing brace, which may have square
brackets. A search by that expression takes exponential time for hostile text. This module computes
the same match from the end of the text backwards, in time linear in its length.
"""

from __future__ import annotations

import json
from typing import Any

# Characters of an answer that are searched; a calendar of a day has some hundreds.
LONGEST = 100_000
# Opening brackets at which a list is looked for; an answer has some few.
_STARTS = 500
_DECODER = json.JSONDecoder()


def last_list(text: str) -> list[Any] | None:
    """The last list of objects in a text, or a last empty list; None if the text has neither."""
    text = text[-LONGEST:]
    found: list[Any] | None = None
    place = text.find("[")
    for _ in range(_STARTS):
        if place < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            place = text.find("[", place + 1)
            continue
        if all(isinstance(event, dict) for event in value):
            found = value
        place = text.find("[", end)
    return found


def first_list(text: str) -> list[Any] | None:
    """The first list of objects in a text; None if the text has none or the list is not JSON."""
    found = first_list_text(text[:LONGEST])
    if found is None:
        return None
    try:
        value = json.loads(found)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def first_list_text(text: str) -> str | None:
    """The part of a text that the expression matches first."""
    start = text.find("[")
    if start < 0:
        return None
    ends = _ends(text, start)
    while start >= 0:
        end = ends[start + 1]
        if end >= 0:
            return text[start:end]
        start = text.find("[", start + 1)
    return None


def _ends(text: str, start: int) -> list[int]:
    """For each place, where a match that stands before its `{` there would end, or -1.

    Three states from the end of the text backwards: before the `{`, between it and its `}`,
    and after that. Of several ways on, the expression takes the first that leads to a match:
    a character by itself, then a block, then the state's own sign.
    """
    size = len(text)
    before, within, after = ([-1] * (size + 2) for _ in range(3))
    closing = -1
    for place in range(size - 1, start - 1, -1):
        char = text[place]
        if char == "[":
            continue
        if char == "]":
            after[place] = place + 1
            continue
        following = place + 1
        block = closing + 1 if char == "{" and closing >= 0 else size + 1
        ways = (before[following], before[block], within[following] if char == "{" else -1)
        before[place] = _first(ways)
        ways = (within[following], within[block], after[following] if char == "}" else -1)
        within[place] = _first(ways)
        after[place] = _first((after[following], after[block], -1))
        if char == "}":
            closing = place
    return before


def _first(ways: tuple[int, int, int]) -> int:
    for end in ways:
        if end >= 0:
            return end
    return -1
