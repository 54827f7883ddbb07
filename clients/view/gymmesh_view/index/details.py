"""Fills the page's tables of an index, which gymmesh_client.index keeps. See its `tables`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from gymmesh_client import UserError
from gymmesh_client.index import UndescribedRow
from gymmesh_view.rows import ONE_OF, SETS, Summary, summary_of

_KNOWN: Final = 50_000
# Columns that hold the number of a name, and those that hold that of a set of names, by their kind.
_NAMED: Final = frozenset((*ONE_OF, "task"))
_SETS: Final = {column: kind for kind, column in SETS.items()}
_COLUMNS: Final = (
    "id", "source", "outcome", "environment", "agent", "model", "task", "repeat", "attempt",
    "reward", "verdict", "stop", "boundary", "cause", "turns", "tool_calls", "input_tokens",
    "output_tokens", "duration_us", "started_at", "flags", "tags", "tools", "actors",
)  # fmt: skip
_NAME: Final = """
    INSERT INTO names (kind, name) VALUES (?, ?)
    ON CONFLICT (kind, name) DO UPDATE SET name = name RETURNING id
"""
_INSERT: Final = (
    f"INSERT INTO rollouts ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
)


class PageDetails:
    """Describes rows: the columns of the table for each row, and its words."""

    def __init__(self) -> None:
        self._names: Names | None = None

    def add(
        self, database: sqlite3.Connection, rows: Sequence[UndescribedRow]
    ) -> Sequence[tuple[int, int, str]]:
        """See `gymmesh_client.index.writer.Details`."""
        names = self._names = self._names or Names(database)
        found: list[tuple[UndescribedRow, Summary]] = []
        problems: list[tuple[int, int, str]] = []
        for row in rows:
            try:
                found.append((row, summary_of(row.line, row.where)))
            except UserError as error:
                problems.append((row.attempt, row.source, str(error)))
        database.executemany(_INSERT, [_columns(names, row, one) for row, one in found])
        database.executemany(
            "INSERT INTO listed (id, rollout_id, title) VALUES (?, ?, ?)",
            [(row.attempt, one.rollout_id, one.title) for row, one in found],
        )
        database.executemany(
            "INSERT INTO words (rowid, body) VALUES (?, ?)",
            [(row.attempt, one.words) for row, one in found],
        )
        return problems


class Names:
    """Numbers for texts: for names, and for sets of names."""

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
        """The number of a set of texts; 0 for an empty set."""
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


def _columns(names: Names, row: UndescribedRow, one: Summary) -> list[object]:
    """The values of the columns, most of which a summary has by the same name."""
    values: list[object] = [row.attempt, row.source]
    for column in _COLUMNS[2:]:
        value = getattr(one, column)
        if column in _NAMED:
            value = names.number(column, value)
        elif column in _SETS:
            value = names.set_number(_SETS[column], value)
        values.append(value)
    return values
