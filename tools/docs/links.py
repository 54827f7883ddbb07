"""Checks a built site: every link and picture leads to a file and anchor that exist."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_TARGETS: Final = ("href", "src")
# Pages that Sphinx makes of its own accord and links from its header.
START: Final = "index.html"


@dataclass
class Found:
    """What the links of a site came to.

    Attributes:
        pages: how many pages there are.
        links: how many links within the site were followed.
        outside: how many lead elsewhere, which nobody followed.
        problems: `PAGE: TARGET: what is wrong`.
    """

    pages: int = 0
    links: int = 0
    outside: int = 0
    problems: list[str] = field(default_factory=list)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value and key in ("id", "name"):
                self.anchors.add(value)
            elif value and key in _TARGETS:
                self.targets.append(value)


def check_links(site: Path) -> Found:
    """Follows the links of every page below `site`.

    A page that no chain of links from index.html reaches is a problem, too.
    """
    pages = {path.relative_to(site).as_posix(): _read(path) for path in site.rglob("*.html")}
    found = Found(pages=len(pages))
    leads: dict[str, set[str]] = {name: set() for name in pages}
    for name, page in sorted(pages.items()):
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                found.outside += 1
                continue
            found.links += 1
            path = _path(name, unquote(parts.path))
            if path in pages:
                leads[name].add(path)
                if parts.fragment and unquote(parts.fragment) not in pages[path].anchors:
                    found.problems.append(f"{name}: {target}: the page has no such anchor")
            elif not (site / path).is_file():
                found.problems.append(f"{name}: {target}: there is no such file")
    for name in sorted({*pages} - {*_reached(leads)}):
        found.problems.append(f"{name}: no link leads to this page")
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _path(page: str, target: str) -> str:
    if not target:
        return page
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return posixpath.join(joined, START) if target.endswith("/") else joined


def _reached(leads: dict[str, set[str]]) -> Iterator[str]:
    seen, waiting = {START}, [START]
    while waiting:
        name = waiting.pop()
        yield name
        new = leads.get(name, set()) - seen
        seen |= new
        waiting += new
