"""The tables of the view's index, and how texts become numbers in them.

The table `rollouts` is narrow, for filters and sorts read all of it: names are numbers into
`names`, and the sets of a rollout's tags, tools and actors are numbers into `sets`. What only the
rows on the screen need stands in `places`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gymmesh_client import UserError
from gymmesh_view.rows import ONE_OF, SETS, Summary

VERSION: Final = 7
"""Of the tables, what `meta` has, and what a row's summary is; an index of another version is made
anew.
"""
_KNOWN: Final = 50_000

TABLES: Final = """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE files (id INTEGER PRIMARY KEY, source INTEGER, run TEXT NOT NULL,
                        path TEXT NOT NULL UNIQUE);
    CREATE TABLE names (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
                        UNIQUE (kind, name));
    CREATE TABLE sets (id INTEGER NOT NULL, name INTEGER NOT NULL, PRIMARY KEY (name, id))
        WITHOUT ROWID;
    CREATE INDEX sets_id ON sets (id);
    CREATE TABLE rollouts (
        id INTEGER PRIMARY KEY,
        file INTEGER, outcome INTEGER, environment INTEGER, agent INTEGER, model INTEGER,
        task INTEGER, repeat INTEGER, attempt INTEGER, reward REAL, verdict INTEGER, stop INTEGER,
        boundary INTEGER, cause INTEGER, turns INTEGER, tool_calls INTEGER, input_tokens INTEGER,
        output_tokens INTEGER, duration_us INTEGER, started_at REAL, flags INTEGER, tags INTEGER,
        tools INTEGER, actors INTEGER
    );
    CREATE INDEX rollouts_task ON rollouts (task);
    CREATE TABLE places (
        id INTEGER PRIMARY KEY,
        file INTEGER, offset INTEGER, inner INTEGER, length INTEGER, extent INTEGER,
        number INTEGER, crc INTEGER, rollout_id TEXT, title TEXT
    );
    CREATE INDEX places_at ON places (file, offset, inner);
    CREATE INDEX places_rollout ON places (rollout_id) WHERE rollout_id != '';
    CREATE VIRTUAL TABLE words USING fts5 (body, content = '', detail = none);
"""
# Columns that hold the number of a name, and those that hold that of a set of names, by their kind.
_NAMED: Final = frozenset((*ONE_OF, "task"))
_SETS: Final = {column: kind for kind, column in SETS.items()}
COLUMNS: Final = (
    "id", "file", "outcome", "environment", "agent", "model", "task", "repeat", "attempt",
    "reward", "verdict", "stop", "boundary", "cause", "turns", "tool_calls", "input_tokens",
    "output_tokens", "duration_us", "started_at", "flags", "tags", "tools", "actors",
)  # fmt: skip
_NAME: Final = """
    INSERT INTO names (kind, name) VALUES (?, ?)
    ON CONFLICT (kind, name) DO UPDATE SET name = name RETURNING id
"""
_INSERT: Final = (
    f"INSERT INTO rollouts ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
)


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open an index. Raises UserError where SQLite cannot."""
    mode = "rwc" if write else "ro"
    try:
        database = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            check_same_thread=False,
            timeout=30,
            isolation_level=None,
        )
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cache_size = -65536")
        database.execute("PRAGMA temp_store = MEMORY")
        if write:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        raise UserError(f"{path}: cannot be opened: {error}; remove it and try again") from None
    return database


class Names:
    """Gives texts their numbers: those of `names`, and of sets of them."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        #: The number of a text of a kind; a new one where it has none yet.
        self.number = lru_cache(_KNOWN)(self._number)
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        (most,) = database.execute("SELECT coalesce(max(id), 0) FROM sets").fetchone()
        self._last_set = int(most)
        members: dict[int, list[int]] = {}
        for number, name in database.execute("SELECT id, name FROM sets LIMIT ?", (_KNOWN,)):
            members.setdefault(number, []).append(name)
        if len(members) < _KNOWN:
            self._sets |= {tuple(sorted(one)): number for number, one in members.items()}

    def _number(self, kind: str, name: str) -> int:
        return int(self._database.execute(_NAME, (kind, name)).fetchone()[0])

    def set_number(self, kind: str, names: Iterable[str]) -> int:
        """The number of a set of texts; 0 for none."""
        members = tuple(sorted(self.number(kind, name) for name in names))
        known = self._sets.get(members)
        if known is None:
            if len(self._sets) >= _KNOWN:
                self._sets = {(): 0}  # the same set may then have two numbers, which does no harm
            self._last_set += 1
            known = self._sets[members] = self._last_set
            self._database.executemany(
                "INSERT INTO sets (id, name) VALUES (?, ?)", [(known, one) for one in members]
            )
        return known


def insert(
    database: sqlite3.Connection,
    names: Names,
    rows: Sequence[tuple[int, int, Summary, tuple[int | None, ...]]],
) -> None:
    """Put rows in: each its id, file, summary and place (offset, inner, length,
    extent, number, crc).
    """
    database.executemany(
        _INSERT, [_columns(names, number, file, one) for number, file, one, _ in rows]
    )
    database.executemany(
        "INSERT INTO places VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(number, file, *place, one.rollout_id, one.title) for number, file, one, place in rows],
    )
    database.executemany(
        "INSERT INTO words (rowid, body) VALUES (?, ?)",
        [(number, one.words) for number, _, one, _ in rows],
    )


def _columns(names: Names, number: int, file: int, one: Summary) -> list[object]:
    """The values of `COLUMNS`, most of which a summary has by the same name."""
    values: list[object] = [number, file]
    for column in COLUMNS[2:]:
        value = getattr(one, column)
        if column in _NAMED:
            value = names.number(column, value)
        elif column in _SETS:
            value = names.set_number(_SETS[column], value)
        values.append(value)
    return values


def delete_file(database: sqlite3.Connection, file: int) -> None:
    """Take out all rows of a file; their words stay, and name nothing any more."""
    database.execute(
        "DELETE FROM rollouts WHERE id IN (SELECT id FROM places WHERE file = ?)", (file,)
    )
    database.execute("DELETE FROM places WHERE file = ?", (file,))


def delete_row(database: sqlite3.Connection, file: int, offset: int, inner: int) -> None:
    """Take out the row at a place, if there is one."""
    found = database.execute(
        "SELECT id FROM places WHERE file = ? AND offset = ? AND inner = ?", (file, offset, inner)
    ).fetchone()
    if found is not None:
        database.execute("DELETE FROM rollouts WHERE id = ?", found)
        database.execute("DELETE FROM places WHERE id = ?", found)
