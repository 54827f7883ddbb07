r"""Where in a response the answer to a puzzle stands.

The rule is NeMo Gym's: the last ``<answer>…</answer>``, else the first ``\boxed{…}`` up to its
first closing brace, else the whole text. Written as searches rather than regular expressions,
so that the time is linear in the text whatever the model wrote.
"""

from __future__ import annotations

from typing import Literal

AnswerSource = Literal["tags", "boxed", "text"]

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOX = "\\boxed{"


def extract_answer(text: str) -> tuple[str, AnswerSource]:
    """The answer without white space around it, and where it stood."""
    tagged = _last_tagged(text)
    if tagged is not None:
        return tagged.strip(), "tags"
    boxed = _first_boxed(text)
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
