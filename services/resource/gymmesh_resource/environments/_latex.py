r"""The little LaTeX that answers are wrapped in. Pure."""

from __future__ import annotations

from typing import Final

_TEXT: Final = "\\text{"


def without_text(text: str) -> str:
    r"""What stands inside ``\text{…}`` around the whole of a text, however often; linear time."""
    start, end = 0, len(text)
    while text.startswith(_TEXT, start) and end > start + len(_TEXT) and text[end - 1] == "}":
        start, end = start + len(_TEXT), end - 1
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
    return text[start:end]
