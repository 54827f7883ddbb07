"""Texts and answers of known data sets. Pure; each raises RowRefused for a value it cannot read."""

from __future__ import annotations

import re
from typing import Any, Final

from gymmesh_data.imports.answers import without_thousands
from gymmesh_data.imports.items import RowRefused

_FINAL: Final = re.compile(r"(?:^|\n)[^\S\n]*####[^\S\n]*(\S[^\n]*?)\s*$")
_BOX: Final = re.compile(r"\\(?:f?boxed|fbox)(?![A-Za-z])\s*")
_BARE: Final = re.compile(r"[^\s{}$\\]+|\\[A-Za-z]+")


def after_hashes(solution: str) -> str:
    """What follows `####` in the last line of a solution, without commas between thousands."""
    found = _FINAL.search(solution)
    if found is None:
        raise RowRefused("does not end with a line '#### ANSWER'")
    return without_thousands(found[1])


def last_box(solution: str) -> str:
    """What the last `\\boxed{…}` or `\\fbox{…}` of a solution holds, or the one token after it."""
    boxes = list(_BOX.finditer(solution))
    if not boxes:
        raise RowRefused(r"has no \boxed{}")
    start = boxes[-1].end()
    if solution[start : start + 1] != "{":
        bare = _BARE.match(solution, start)
        if bare is None:
            raise RowRefused("ends with an empty \\boxed")
        return bare[0].rstrip(".,;")
    held = _braced(solution, start)
    if not held:
        raise RowRefused(r"ends with a \boxed{} that is empty or not closed")
    return without_thousands(held)


def _braced(text: str, start: int) -> str:
    """What a brace holds, up to the one that closes it; empty where none does."""
    depth, place = 0, start
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 1
        else:
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if not depth:
                return text[start + 1 : place].strip()
        place += 1
    return ""


def stripped(text: str) -> str:
    """A text without white space around it, and a number without commas between thousands."""
    return without_thousands(text.strip())


def unix_lines(text: str) -> str:
    """A text with the line ends of Unix."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def first_text(texts: list[str]) -> str:
    """The first of some texts."""
    if not texts:
        raise RowRefused("is empty")
    return texts[0].strip()


def without_nulls(value: Any) -> Any:
    """A list of objects without the keys that are null, as tables fill them in; null is empty."""
    if not isinstance(value, list) or not all(isinstance(one, dict | None) for one in value):
        raise RowRefused("must be a list of objects")
    return [{key: held for key, held in (one or {}).items() if held is not None} for one in value]


def titled_paragraphs(context: Any) -> str:
    """Paragraphs after their titles, from `[[title, [sentence, …]], …]`, or from an object with
    the lists `title` and `sentences`.
    """
    if isinstance(context, dict):
        titles, parts = context.get("title"), context.get("sentences")
        if not isinstance(titles, list) or not isinstance(parts, list):
            raise RowRefused("must have the lists 'title' and 'sentences'")
        if len(titles) != len(parts):
            raise RowRefused(f"has {len(titles)} titles for {len(parts)} paragraphs")
        pairs: list[Any] = [list(pair) for pair in zip(titles, parts, strict=True)]
    else:
        pairs = context if isinstance(context, list) else []
    if not pairs:
        raise RowRefused("has no paragraphs")
    return "\n\n".join(_paragraph(pair) for pair in pairs)


def _paragraph(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2:
        title, sentences = pair
        if isinstance(title, str) and isinstance(sentences, list):
            told = [one.strip() for one in sentences if isinstance(one, str)]
            if len(told) == len(sentences):
                return f"{title}\n{' '.join(told)}"
    raise RowRefused("must hold titles, each with a list of sentences")
