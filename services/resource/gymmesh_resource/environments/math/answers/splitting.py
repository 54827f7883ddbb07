"""Divides an answer at the signs that stand outside of all its brackets. Pure, linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TOKEN = re.compile(r"\\(?:begin|end)\{[a-zA-Z*]+\}|\\[a-zA-Z]+|\\.|[A-Za-z]+|[<>=]=|[-=]>|\S|\s+")
_OPENS = {"(", "[", "{", "\\{", "\\lfloor", "\\lceil", "\\langle"}
_CLOSES = {")", "]", "}", "\\}", "\\rfloor", "\\rceil", "\\rangle"}


def tokens_outside(text: str) -> Iterator[tuple[str, int, int]]:
    """Tokens outside of brackets, each with its start and end; brackets themselves are not."""
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in _OPENS or token.startswith("\\begin"):
            depth += 1
        elif token in _CLOSES or token.startswith("\\end"):
            depth -= 1
        elif depth == 0:
            yield token, found.start(), found.end()


def split(text: str, separates: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """The parts between separators outside of brackets, and those separators."""
    parts, signs, start = [], [], 0
    for token, at, end in tokens_outside(text):
        if separates(token):
            parts.append(text[start:at].strip())
            signs.append(token)
            start = end
    return [*parts, text[start:].strip()], signs


def enclosed(text: str) -> tuple[str, str, str] | None:
    """The bracket around the whole of a text, what it holds, and the bracket that ends it."""
    depth, start = 0, ""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in _OPENS:
            depth += 1
            start = start or token
        elif token in _CLOSES:
            depth -= 1
            if depth == 0:
                whole = found.end() == len(text) and text.startswith(start)
                return (start, text[len(start) : found.start()].strip(), token) if whole else None
        elif depth == 0:
            return None
    return None
