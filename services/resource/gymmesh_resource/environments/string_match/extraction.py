r"""Where a response's answer stands, by the extraction modes of NeMo Gym's string_match server.

Invariant: time is linear in the response.

boxed: the last ``\boxed{}`` that is closed. final_answer: what follows the last "Final answer:"
or "Answer:" in its line, else the box. last_line: the last line that is not blank.
full_response: all of it.
"""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

from gymmesh_resource.environments._latex import boxes, without_text

ExtractionMode = Literal["boxed", "final_answer", "last_line", "full_response"]
MODES: Final[tuple[ExtractionMode, ...]] = get_args(ExtractionMode)

_FINAL = re.compile(r"(?:final\s+answer|answer)\s*[:：]\s*(.+)", re.IGNORECASE)


def extract(text: str, mode: ExtractionMode) -> str | None:
    """The answer as the model wrote it, without spaces around it; None where there is none."""
    match mode:
        case "boxed":
            return _boxed(text)
        case "final_answer":
            answer = _final_answer(text)
            return _boxed(text) if answer is None else answer
        case "last_line":
            return next(
                (line for raw in reversed(text.splitlines()) if (line := raw.strip())), None
            )
        case "full_response":
            return text.strip() or None


def _boxed(text: str) -> str | None:
    """The content of the last box with a closing brace, free of text commands around it."""
    last = max(boxes(text), key=lambda box: box.start, default=None)
    return None if last is None else without_text(text[last].strip())


def _final_answer(text: str) -> str | None:
    last = None
    for match in _FINAL.finditer(text):
        last = match.group(1)
    if last is None:
        return None
    return last.strip().removesuffix(".").strip().rstrip(".")
