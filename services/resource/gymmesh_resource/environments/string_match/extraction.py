r"""Where a response's answer stands.

Invariant: time is linear in the response.

boxed: the last ``\boxed{}`` that is closed. final_answer: what follows the last "Final answer:"
or "Answer:" in its line, else the box. last_line: the last line that is not blank.
full_response: all of it. Emphasis around "Answer:" and fences around the whole are not part of an
answer.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from gymmesh_resource.environments._latex import boxes, without_text

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]
MODES: Final[tuple[ExtractionMode, ...]] = get_args(ExtractionMode)

_FINAL = re.compile(r"answer[*_]{0,3}\s*[:：][*_]{0,3}\s*(.+)", re.IGNORECASE)
_FENCE = re.compile(r"(?:`{3,}|~{3,})[\w+-]*")


def extract(text: str, mode: ExtractionMode) -> str | None:
    """The answer as the model wrote it, without spaces around it; None where there is none."""
    match mode:
        case "boxed":
            return last_box(text)
        case "final_answer":
            answer = _final_answer(text)
            return last_box(text) if answer is None else answer
        case "last_line":
            return last_line(text, skipping=_FENCE)
        case "full_response":
            return _without_fence(text.strip()) or None


def last_box(text: str) -> str | None:
    """The content of the last box with a closing brace, free of text commands around it."""
    last = max(boxes(text), key=lambda box: box.start, default=None)
    return None if last is None else without_text(text[last].strip())


def last_line(text: str, skipping: re.Pattern[str] | None = None) -> str | None:
    """The last line that is not blank, and that the pattern does not match in full."""
    for raw in reversed(text.splitlines()):
        line = raw.strip()
        if line and not (skipping and skipping.fullmatch(line)):
            return line
    return None


def _final_answer(text: str) -> str | None:
    last = None
    for match in _FINAL.finditer(text):
        last = match.group(1)
    if last is None:
        return None
    answer = last.strip()
    # Emphasis that begins before "Answer" ends behind the answer.
    if answer.count("**") % 2:
        answer = answer.removesuffix("**").rstrip()
    if answer.count("__") % 2:
        answer = answer.removesuffix("__").rstrip()
    return answer or None


def _without_fence(text: str) -> str:
    lines = text.splitlines()
    fenced = len(lines) > 2 and _FENCE.fullmatch(lines[0].strip())
    if fenced and lines[-1].strip() == lines[0].strip()[:3]:
        return "\n".join(lines[1:-1]).strip()
    return text
