"""Searches an index and reads its documents.

Invariant: whatever is searched for is looked up as words. A query has no syntax but quotation
marks around a phrase, so that it can neither fail nor reach other columns.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gymmesh_resource.environments.web_search.index import APPLICATION_ID, FORMAT

_PIECE = re.compile(r'"([^"]{1,200})"|(\w{1,100})')
_WORD = re.compile(r"\w{1,100}")
# Words of a query that count, and characters that are looked at.
_WORDS = 32
_QUERY = 2_000
_SNIPPET_WORDS = 32
_SNIPPET = 400
_NAME = 2_000
# Titles weigh more than texts in the ranking.
_SEARCH = """
SELECT documents.id, documents.url, documents.title,
       snippet(pages, 1, '', '', ' … ', ?) AS found
FROM pages JOIN documents ON documents.number = pages.rowid
WHERE pages MATCH ? ORDER BY bm25(pages, 4.0, 1.0), documents.number LIMIT ?
"""
_FETCH = """
SELECT id, url, title, substr(text, ?, ?), length(text) FROM documents
WHERE id = ? OR (url = ? AND url <> '') ORDER BY id <> ? LIMIT 1
"""
# Virtual machine steps of SQLite between two looks at the clock.
_STEPS = 20_000


class CorpusError(Exception):
    """An index that cannot be used; one sentence."""


class TooSlow(Exception):
    """A search that took longer than it may."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found, with a passage of at most 400 characters."""

    id: str
    url: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a document: `text` begins at character `offset` of `total`."""

    id: str
    url: str
    title: str
    text: str
    offset: int
    total: int


class Corpus:
    """An index opened for reading, by any thread. Raises `CorpusError` where it is none."""

    def __init__(self, path: Path, *, timeout_s: float = 5.0) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        if not path.is_file():
            raise CorpusError(f"there is no index {path}")
        try:
            database = self._database()
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            self.close()
            raise CorpusError(f"{path} is not an index: {error}") from None
        if (application, version) != (APPLICATION_ID, FORMAT):
            self.close()
            raise CorpusError(f"{path} is an index of another version. Build the index again")

    def close(self) -> None:
        """Close the file; searches under way fail."""
        with self._lock:
            databases, self._all = self._all, []
        for database in databases:
            database.interrupt()
            database.close()

    def search(self, query: str, limit: int) -> list[Hit]:
        """The best documents, best first; none for a query without words. Raises `TooSlow`."""
        expression = match_expression(query)
        if not expression:
            return []
        with self._bounded() as database:
            rows = database.execute(_SEARCH, (_SNIPPET_WORDS, expression, limit)).fetchall()
        return [
            Hit(key, url, title, " ".join((found or "").split())[:_SNIPPET])
            for key, url, title, found in rows
        ]

    def fetch(self, name: str, offset: int, size: int) -> Page | None:
        """`size` characters of the document with that id or address; None where there is none."""
        name = name.strip().encode("utf-8", "replace").decode()[:_NAME]
        with self._bounded() as database:
            values = (offset + 1, size, name, name, name)
            row = database.execute(_FETCH, values).fetchone()
        if row is None:
            return None
        key, url, title, text, total = row
        return Page(key, url, title, text, offset, total)

    @contextmanager
    def _bounded(self) -> Iterator[sqlite3.Connection]:
        database = self._database()
        end = time.monotonic() + self._timeout_s
        database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        try:
            yield database
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise TooSlow(f"longer than {self._timeout_s:g} s") from None
            raise
        finally:
            database.set_progress_handler(None, 0)

    def _database(self) -> sqlite3.Connection:
        """This thread's connection."""
        database: sqlite3.Connection | None = getattr(self._own, "database", None)
        if database is None:
            # Immutable: an index is replaced as a file, never changed.
            address = f"{self._path.resolve().as_uri()}?mode=ro&immutable=1"
            database = sqlite3.connect(address, uri=True, check_same_thread=False)
            with self._lock:
                self._all.append(database)
            self._own.database = database
        return database


def match_expression(query: str) -> str:
    """A query as an FTS5 expression: any of its words and quoted phrases; empty without any."""
    parts: list[str] = []
    for phrase, word in _PIECE.findall(query[:_QUERY]):
        words = _WORD.findall(phrase) if phrase else [word]
        # Within double quotes FTS5 knows no operators; words have no quotes in them.
        if words:
            parts.append(f'"{" ".join(words)}"')
    return " OR ".join(dict.fromkeys(parts[:_WORDS]))
