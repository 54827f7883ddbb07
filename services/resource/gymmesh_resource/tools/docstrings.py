"""Reads from a tool's docstring what the model is given: the text, and each argument's line.

Known are Google's sections (`Args:` with an indented `name: text` per argument) and
reStructuredText's `:param name: text`. Other sections (`Returns:`, `Raises:`, …) are for readers
of the code and are left out.
"""

from __future__ import annotations

import inspect
import re

_ARGUMENTS = frozenset({"Args:", "Arguments:", "Parameters:"})
_SECTIONS = _ARGUMENTS | {
    "Example:", "Examples:", "Note:", "Notes:", "Raises:", "Returns:", "Yields:",
}  # fmt: skip
# Deeper lines of an Args section continue the one above, whatever they look like.
_DEEPEST_NAME = 4
_NAMED = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?\s*:\s*(.*)")
_PARAM = re.compile(r":param(?:\s+[\w.\[\]]+)?\s+(\w+)\s*:\s*(.*)")
_FIELD = re.compile(r":\w+[^:]*:")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The description and the arguments' descriptions by name; empty where there are none.

    A section lasts as long as its lines are indented.
    """
    described: dict[str, str] = {}
    kept: list[str] = []
    section, current = "", ""
    for line in inspect.cleandoc(text or "").splitlines():
        bare, indented = line.strip(), line.startswith(" ")
        param = _PARAM.match(line)
        if param:
            section, current = ":param", _note(described, param)
        elif bare in _SECTIONS and not indented:
            section, current = bare, ""
        elif _FIELD.match(line):
            section, current = ":field", ""
        elif not section or (bare and not indented):
            section = ""
            kept.append(line)
        elif bare:
            current = _section_line(line, section, described, current)
    return "\n".join(kept).strip(), described


def _section_line(line: str, section: str, described: dict[str, str], current: str) -> str:
    """Take an indented line of a section; gives the argument that the next may continue."""
    bare = line.strip()
    named = _NAMED.fullmatch(bare)
    if section in _ARGUMENTS and named and len(line) - len(line.lstrip()) <= _DEEPEST_NAME:
        return _note(described, named)
    if current:
        described[current] = f"{described[current]} {bare}".strip()
    return current


def _note(described: dict[str, str], found: re.Match[str]) -> str:
    described[found[1]] = found[2].strip()
    return found[1]
