"""The program in a model's answer: the last fenced block of Python. Pure.

A fence is three or more backticks or tildes, at any indentation. A block that is not closed reaches
to the end of the text. A block without a language may be sample output, so it is Python only if it
looks like a program. A closed block takes precedence over a block that was cut off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# A fence that opens a block: alone on its line or at the end of it, with the language.
_OPENING = re.compile(r"(^[^\S\n]*+|[^`~\n])(`{3,}+|~{3,}+)[^\S\n]*+([\w+#.-]*+)[^\S\n]*+$")
_FENCE = re.compile(r"`{3,}+|~{3,}+")
_LANGUAGE = re.compile(r"[^\S\n]*+(?:(\w++)[^\S\n]++)?+")
_PYTHON = re.compile(r"(?:python|py)[0-9.]*|pypy[0-9]*|ipython", re.IGNORECASE)

# A line that a program has and output hardly ever: a definition, an import, a loop, a call.
_STATEMENT = re.compile(
    r"^[^\S\n]*(?:(?:def|class|import|from|async|return|global)\s+\w|(?:for|while|if|with|try)\b.*:"
    r"|print\(|@\w|\w++(?:,[^\S\n]*+\w++)*+[^\S\n]*+[-+*/]?=[^\S\n]*+\S+\()",
    re.MULTILINE,
)
# Characters at the end of a line that may open a block, and those of a block that say what it is:
# one call of a regular expression must not take a lock for seconds.
_LINE_END, _LOOKED_AT = 300, 20_000


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    text: str
    closed: bool

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """What makes it the program, before its place."""
        unnamed = not self.language
        python = _PYTHON.fullmatch(self.language) or (
            unnamed and _STATEMENT.search(self.text, 0, _LOOKED_AT)
        )
        return bool(python), unnamed and not python, self.closed


def program_of(text: str) -> str:
    """The program; empty if there is no block."""
    blocks = _blocks(text.replace("\r\n", "\n").split("\n"))
    best = max((block.rank for block in blocks), default=None)
    return next((block.text for block in reversed(blocks) if block.rank == best), "")


def _blocks(lines: list[str]) -> list[_Block]:
    found: list[_Block] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if "```" not in line and "~~~" not in line:
            continue
        if one := _on_one_line(line.strip()):
            found.append(one)
        elif opening := _opening(line.rstrip()):
            indent = len(opening[1]) if not opening[1].strip() else 0
            inside, at, closed = _inside(lines, at, opening[2])
            text = "\n".join(_outdented(one, indent) for one in inside)
            found.append(_Block(opening[3], text, closed))
    return found


def _opening(line: str) -> re.Match[str] | None:
    return _OPENING.search(line, max(0, len(line) - _LINE_END))


def _on_one_line(line: str) -> _Block | None:
    """The block that a whole line is, as in ```py print(1)```."""
    fence = _FENCE.match(line)
    if fence is None or not line[fence.end() :].endswith(fence[0]):
        return None
    inside = line[fence.end() : len(line) - len(fence[0])]
    language = _LANGUAGE.match(inside)
    text = inside[language.end() :] if language else inside
    return _Block((language and language[1]) or "", text.strip(), True)


def _inside(lines: list[str], start: int, fence: str) -> tuple[list[str], int, bool]:
    """A block's lines, the place of the first line after it, and whether it is closed."""
    for at in range(start, len(lines)):
        line = lines[at].rstrip()
        before = line.rstrip(fence[0])
        if len(line) - len(before) >= len(fence):
            last = [before] if before.strip() else []
            return [*lines[start:at], *last], at + 1, True
    return lines[start:], len(lines), False


def _outdented(line: str, indent: int) -> str:
    """A line without the white space that its fence has before it, as far as it has any."""
    blank = len(line) - len(line.lstrip(" \t"))
    return line[min(blank, indent) :]
