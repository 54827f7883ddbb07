r"""Finds the answer to a puzzle in a response.

The last ``<answer>…</answer>``, else the last ``\boxed{…}`` up to the brace that closes it, else
the whole text. NeMo Gym takes the first box, up to its first closing brace. The time is linear in
the text, for any text.
"""

from __future__ import annotations

import re
from typing import Literal

AnswerSource = Literal["tags", "boxed", "text"]

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOX = "\\boxed{"
_BRACE = re.compile(r"\\boxed\{|[{}]")


def extract_answer(text: str, *, first_box: bool = False) -> tuple[str, AnswerSource]:
    """The answer without white space around it, and where it stood; `first_box`: as NeMo Gym."""
    tagged = _last_tagged(text)
    if tagged is not None:
        return tagged.strip(), "tags"
    boxed = _first_boxed(text) if first_box else _last_boxed(text)
    if boxed is not None:
        return boxed.strip(), "boxed"
    return text.strip(), "text"


def _last_tagged(text: str) -> str | None:
    found = None
    start = text.find(_OPEN)
    while start >= 0:
        end = text.find(_CLOSE, start + len(_OPEN))
        if end < 0:
            break
        found = text[start + len(_OPEN) : end]
        start = text.find(_OPEN, end + len(_CLOSE))
    return found


def _first_boxed(text: str) -> str | None:
    start = text.find(_BOX)
    while start >= 0:
        inside = start + len(_BOX)
        end = text.find("}", inside)
        if end < 0:
            return None
        if end > inside:
            return text[inside:end]
        start = text.find(_BOX, inside)
    return None


def _last_boxed(text: str) -> str | None:
    if _BOX not in text:
        return None
    found = None
    open_braces: list[int | None] = []  # for each one where a box begins, if it is a box's
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            open_braces.append(None if brace[0] == "{" else brace.end())
        elif open_braces:
            start = open_braces.pop()
            if start is not None and text[start : brace.start()].strip():
                found = start, brace.start()
    return None if found is None else text[slice(*found)]
