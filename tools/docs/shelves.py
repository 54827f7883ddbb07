"""The shelves of docs/index.md: which pages they list, in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SHELF: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE: Final = re.compile(r"\]\(([\w./-]+\.md)\)")


class DocsError(Exception):
    """The documentation can't be built; the message says what to change, and where."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A section of the index: its title, and its pages as paths from docs/."""

    title: str
    pages: tuple[str, ...]


def read_shelves(index: str) -> list[Shelf]:
    """The shelves of the text of docs/index.md, without links that leave docs/.

    Raises:
        DocsError: a page is listed twice.
    """
    shelves, seen = [], set[str]()
    heads = list(_SHELF.finditer(index))
    ends = [head.start() for head in heads[1:]] + [len(index)]
    for head, end in zip(heads, ends, strict=True):
        pages = []
        for page in _PAGE.findall(index[head.end() : end]):
            if page.startswith("../"):
                continue
            if page in seen:
                raise DocsError(f"docs/index.md lists {page} twice; keep one entry")
            seen.add(page)
            pages.append(page)
        shelves.append(Shelf(head[1], tuple(pages)))
    return shelves


def title_of(page: str) -> str:
    """The first heading of a page's text.

    Raises:
        DocsError: there is none.
    """
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    if found is None:
        raise DocsError("a page begins with '# TITLE'")
    return found[1]


def toctree(pages: list[str] | tuple[str, ...], caption: str = "") -> str:
    """A hidden table of contents, which Sphinx shows at the side.

    Args:
        pages: paths from the page that has the table, with or without `.md`.
    """
    lines = ["```{toctree}", ":hidden:"]
    if caption:
        lines.append(f":caption: {caption}")
    return "\n".join([*lines, "", *pages, "```", ""])


def pages_below(folder: Path) -> list[str]:
    """The pages below a folder, as paths from there, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
