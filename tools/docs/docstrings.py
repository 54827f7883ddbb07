"""Docstrings as reStructuredText (pure): their prose is plain words, which Sphinx would misread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

_SECTION: Final = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
_CODE: Final = re.compile(r"(`+)([^`]+)\1")


def rewritten(lines: Sequence[str]) -> list[str]:
    """The lines of a docstring; its Google sections stay as they are, for napoleon.

    An indented paragraph is code. One whose entries are continued by indented lines is a list.
    """
    made: list[str] = []
    in_section = False
    for blank, group in groupby(lines, lambda line: not line.strip()):
        paragraph = list(group)
        if blank:
            made.append("")
            continue
        in_section = in_section or bool(_SECTION.match(paragraph[0]))
        made += _escaped(paragraph) if in_section else _prose(paragraph)
    return [*made, ""]


def _prose(paragraph: list[str]) -> Iterator[str]:
    indented = [line.startswith(" ") for line in paragraph]
    if all(indented):
        yield from ("::", "", *(f"    {line}" for line in paragraph), "")
    elif any(indented):
        marked = [f"  {one.strip()}" if one.startswith(" ") else f"\0{one}" for one in paragraph]
        yield from (line.replace("\0", "* ") for line in _escaped(marked))
    else:
        yield from _escaped(paragraph)


def _escaped(lines: list[str]) -> list[str]:
    """Lines in which code spans are code, also across lines, and nothing else is markup."""
    text, made, at = "\n".join(lines), "", 0
    for code in _CODE.finditer(text):
        # A letter may follow code: `TaskSet`s.
        made += _plain(text[at : code.start()]) + f"``{' '.join(code[2].split())}``\\ "
        at = code.end()
    return (made + _plain(text[at:])).split("\n")


def _plain(text: str) -> str:
    return re.sub(r"([\\*|`])|(?<=\w)_(?!\w)", lambda found: f"\\{found[0]}", text)
