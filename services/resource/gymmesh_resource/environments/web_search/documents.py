"""Reads documents from files: JSONL rows, text, Markdown and HTML.

Invariant: every file and row becomes a document, is reported as passed over, or is an error
that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

IS_FACE = True  # see tools/import_faces.py

_PLAIN = frozenset((".txt", ".text", ".md", ".markdown", ".rst"))
_HTML = frozenset((".html", ".htm", ".xhtml"))
_ROWS = frozenset((".jsonl", ".ndjson"))
_ID_KEYS = ("id", "doc_id", "_id")
_TEXT_KEYS = ("text", "contents", "content", "body")
_HIDDEN = frozenset(("script", "style", "noscript", "template", "svg"))
_BLOCKS = frozenset(
    ("address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "footer", "form", "h1",
     "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre",
     "section", "table", "td", "th", "tr", "ul")
)  # fmt: skip
_TITLE = 200


class DocumentError(ValueError):
    """A file or row that is no document; one sentence that names it."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document. `id` is unique in an index; `url` may be empty; `text` is plain."""

    id: str
    url: str
    title: str
    text: str


def read_documents(sources: Sequence[Path], passed_over: list[str]) -> Iterator[Document]:
    """The documents of JSONL files, of single files and of folders with all below them.

    A file's id is its path within its folder. Files of other kinds and files without text are
    appended to `passed_over`, each with its reason. Raises `DocumentError`.
    """
    for source in sources:
        if source.is_dir():
            files = sorted(path for path in source.rglob("*") if path.is_file())
            for path in files:
                yield from _read(path, path.relative_to(source).as_posix(), passed_over)
        elif source.is_file():
            yield from _read(source, source.name, passed_over)
        else:
            raise DocumentError(f"There is no file or folder {source}.")


def _read(path: Path, name: str, passed_over: list[str]) -> Iterator[Document]:
    kind = path.suffix.lower()
    if kind in _ROWS:
        yield from _rows(path)
        return
    if kind not in _PLAIN | _HTML:
        passed_over.append(f"{path}: the file is not text, Markdown, HTML or JSONL")
        return
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path} is not UTF-8: byte {error.start}.") from None
    title, text = _page(content) if kind in _HTML else (_heading(content), content)
    if not text.strip():
        passed_over.append(f"{path}: the file has no text")
        return
    yield Document(name, "", title[:_TITLE] or Path(name).stem, text.strip())


def _rows(path: Path) -> Iterator[Document]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _document(line, f"{path}:{number}")


def _document(line: str, where: str) -> Document:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DocumentError(f"{where} is not JSON: {error}.") from None
    if not isinstance(row, dict):
        raise DocumentError(f"{where} is not a JSON object.")
    key = _text(row, _ID_KEYS, where) or _text(row, ("url",), where)
    text = _text(row, _TEXT_KEYS, where)
    if not key:
        raise DocumentError(
            f"{where} has no id. Add one of the keys 'id', 'doc_id', '_id' and 'url'."
        )
    if not text.strip():
        raise DocumentError(
            f"{where} has no text. Add one of the keys 'text', 'contents', 'content' and 'body'."
        )
    title = " ".join(_text(row, ("title",), where).split())
    return Document(key, _text(row, ("url",), where), (title or key)[:_TITLE], text.strip())


def _text(row: dict[str, Any], keys: Sequence[str], where: str) -> str:
    for key in keys:
        value = row.get(key)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise DocumentError(f"{where}: {key} must be text.")
        # SQLite takes no lone surrogates, and ends text at a NUL.
        return value.encode("utf-8", "replace").decode().replace("\0", " ")
    return ""


def _heading(content: str) -> str:
    """A Markdown text's first heading, else its first line if that is short."""
    for line in content.splitlines():
        if line.strip():
            found = re.match(r"#{1,6}\s+(.+)", line)
            return found[1].strip(" #") if found else (line.strip() if len(line) < 80 else "")
    return ""


def _page(content: str) -> tuple[str, str]:
    """An HTML page's title and visible text."""
    reader = _PageReader()
    reader.feed(content)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    return " ".join("".join(reader.title).split()), "\n".join(line for line in lines if line)


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self._hidden = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title" or self._in_title
        self._hidden += tag in _HIDDEN
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._hidden:
            self.parts.append(data)
