r"""The LaTeX commands that enclose answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

BOX: Final = "\\boxed{"
_TEXT: Final = "\\text{"
_BRACE = re.compile(r"(\\boxed\{)|\{|\}")


def boxes(text: str) -> Iterator[slice]:
    r"""What each ``\boxed{…}`` that is closed holds, in the order of their ends; linear time."""
    opened: list[tuple[bool, int]] = []
    for brace in _BRACE.finditer(text) if BOX in text else ():
        if brace.group() != "}":
            opened.append((brace.group(1) is not None, brace.end()))
        elif opened:
            is_box, start = opened.pop()
            if is_box:
                yield slice(start, brace.start())


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
