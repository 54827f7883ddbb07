"""Keeps an index up to date with its sources: runs, by their logs, and files of rows.

The index beside a run and the index of the page are both written here, in steps that are repeated
until nothing is new. A source that was replaced is forgotten. The facts of logs and files go to
`attempts`. Where the page's tables are wanted, rows that they lack are described.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from gymmesh_client.index.file_attempts import FileAttempts
from gymmesh_client.index.run_attempts import PLACE, RunAttempts
from gymmesh_client.index.tables import (
    APPLICATION_ID,
    DETAILS,
    INDEX_VERSION,
    INDICES,
    OF_ROLLOUTS,
    TABLES,
    RunInfo,
    get_meta,
    put_meta,
    run_all,
)
from gymmesh_client.log_records import Place
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.row_files import (
    DamagedRow,
    RowPlace,
    RowReader,
    damaged_row,
    line_number,
    read_line,
)

# Attempts at a time: few at first, so that there is something to see at once.
_FIRST: Final = 200
_ROWS: Final = 2_000
_MOST_PROBLEMS: Final = 50
_MOST_CHARS: Final = 500

_UNDESCRIBED: Final = f"""
    SELECT id, source, {PLACE} FROM attempts
    WHERE described = 0 AND current = 1 AND damaged = 0 AND row_kind IS NOT NULL
    ORDER BY id LIMIT ?
"""
_NEW_PROBLEMS: Final = f"""
    SELECT id, source, {PLACE} FROM attempts
    WHERE damaged = 1 AND current = 1 AND id NOT IN (SELECT id FROM problems)
"""
_SOLVED: Final = """
    DELETE FROM problems WHERE id IN (
        SELECT p.id FROM problems p JOIN attempts a ON a.id = p.id
        WHERE a.damaged = 0 AND a.described = 0
    )
"""


@dataclass(frozen=True, slots=True)
class IndexSource:
    """What an index is of.

    Attributes:
        path: the rows of a run, as `--output` named them, or the file.
        run: the files of the run; None for a file without a journal.
        label: what to call it among the others.
    """

    path: Path
    run: OutputFiles | None
    label: str = ""


class UndescribedRow(NamedTuple):
    """A row that the page's tables do not have yet: its attempt, and the number of its source."""

    attempt: int
    source: int
    line: bytes
    where: str  # its place, for messages


class Details(Protocol):
    """Fills the page's tables."""

    def add(
        self, database: sqlite3.Connection, rows: Sequence[UndescribedRow]
    ) -> Sequence[tuple[int, int, str]]:
        """Describe rows. Returns the attempt, the source and the problem of each that is not a
        rollout.
        """
        ...


class IndexWriter:
    """Writes an index to an open database.

    Args:
        details: fills the page's tables; None leaves them as they are.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        sources: Sequence[IndexSource],
        details: Details | None = None,
    ) -> None:
        self._database = database
        self._details = details
        self._sources = sources
        self._most = _ROWS if details is None else _FIRST
        self._undescribed = self._described = 0
        with self._transaction():
            self._make_tables()
            self._takers = [self._taker(number) for number in range(len(sources))]

    def step(self) -> bool:
        """Add some of what is new, each source's in a transaction of its own; whether there was
        more of it.

        Raises:
            UserError: a source cannot be read, or is damaged.
            sqlite3.DatabaseError: the index cannot be written, or is damaged.
        """
        for number in range(len(self._takers)):
            if self._takers[number].is_another():
                with self._transaction():
                    self._forget(number)
            if self._takers[number].has_news() and not self._take(number):
                return True
        if self._details is None:
            return False
        with self._transaction():
            return self._describe(_ROWS)

    def _take(self, number: int) -> bool:
        """Take some of a source in; whether all of it is in."""
        taker = self._takers[number]
        with self._transaction():
            whole = taker.take(self._most)
            self._took(number, taker)
            if whole:
                self._note_damaged()
            self._describe(self._most)
        self._most = _ROWS
        return whole

    def size(self) -> tuple[int, int]:
        """How much is taken in, and how much there is, in bytes of logs and files."""
        sizes = [taker.size() for taker in self._takers]
        done, size = sum(min(one) for one in sizes), sum(size for _, size in sizes)
        known = self._described + self._undescribed
        return (done * self._described // known if self._undescribed else done), size

    def ended(self) -> list[Any]:
        """How the run's last session ended, for each source; None: it is still running."""
        return [taker.ended for taker in self._takers]

    # -- sources ----------------------------------------------------------------------------------

    def _make_tables(self) -> None:
        run = self._database.execute
        if run("PRAGMA user_version").fetchone() != (INDEX_VERSION,):
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {INDEX_VERSION}")
            run_all(self._database, TABLES)
            put_meta(self._database, "changes", 0)
        for number, source in enumerate(self._sources, 1):
            run(
                "INSERT INTO sources (id, path, label) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET path = excluded.path, label = excluded.label",
                (number, str(source.path), source.label),
            )
        if self._details is not None:
            run_all(self._database, INDICES + DETAILS)
            count = "SELECT count(*) FROM rollouts"
            self._described = run(count).fetchone()[0]
            count = _UNDESCRIBED.partition("ORDER")[0].replace(f"id, source, {PLACE}", "count(*)")
            self._undescribed = run(count).fetchone()[0]

    def _taker(self, number: int) -> RunAttempts | FileAttempts:
        source, query = self._sources[number], "SELECT state FROM sources WHERE id = ?"
        state = self._database.execute(query, (number + 1,)).fetchone()[0]
        if source.run is None:
            return FileAttempts(
                self._database, number + 1, source.path, json.loads(state) if state else None
            )
        taker = RunAttempts(self._database, number + 1, source.run)
        if state:
            taker.resume(msgspec.convert(json.loads(state), RunInfo, str_keys=True))
        return taker

    def _took(self, number: int, taker: RunAttempts | FileAttempts) -> None:
        """Keep how far a source is taken in, with what was taken."""
        state: Any
        if isinstance(taker, RunAttempts):
            state = msgspec.structs.asdict(taker.info())
            self._remove([(attempt,) for attempt in taker.no_longer])
            taker.no_longer.clear()
        else:
            state = taker.state
        query = "UPDATE sources SET state = ? WHERE id = ?"
        self._database.execute(query, (json.dumps(state), number + 1))
        put_meta(self._database, "changes", (get_meta(self._database, "changes") or 0) + 1)

    def _forget(self, number: int) -> None:
        """Remove a source that was replaced, to be read from its beginning."""
        of_source = (number + 1,)
        if self._has_details():
            for table in OF_ROLLOUTS:
                query = "SELECT id FROM attempts WHERE source = ?"
                self._database.execute(f"DELETE FROM {table} WHERE id IN ({query})", of_source)
        self._database.execute("DELETE FROM attempts WHERE source = ?", of_source)
        self._database.execute("UPDATE sources SET state = NULL WHERE id = ?", of_source)
        put_meta(self._database, "changes", (get_meta(self._database, "changes") or 0) + 1)
        self._takers[number] = self._taker(number)

    # -- the page's tables ------------------------------------------------------------------------

    def _describe(self, most: int) -> bool:
        """Describe some rows; whether there were any."""
        if self._details is None:
            return False
        found = self._database.execute(_UNDESCRIBED, (most,)).fetchall()
        if not found:
            self._undescribed = 0
            return False
        rows, unreadable = [], []
        with self._readers() as lines:
            for attempt, source, *place in found:
                where, line = lines(source, Place._make(place))
                if line is None:
                    unreadable.append((attempt,))
                else:
                    rows.append(UndescribedRow(attempt, source, line, where))
        self._database.executemany("UPDATE attempts SET damaged = 1 WHERE id = ?", unreadable)
        problems = self._details.add(self._database, rows)
        self._note(problems)
        done = [(row.attempt,) for row in rows]
        self._database.executemany("UPDATE attempts SET described = 1 WHERE id = ?", done)
        put_meta(self._database, "changes", (get_meta(self._database, "changes") or 0) + 1)
        self._described += len(rows)
        self._undescribed -= min(len(found), self._undescribed)
        if unreadable:
            self._note_damaged()
        return True

    @contextlib.contextmanager
    def _readers(self) -> Iterator[Any]:
        """Gives what reads a row of a source: its place for people, and the row, None where it was
        changed.
        """
        with ExitStack() as stack:
            readers: dict[int, RowReader] = {}

            def read(source: int, place: Place) -> tuple[str, bytes | None]:
                taker = self._takers[source - 1]
                if isinstance(taker, FileAttempts):
                    where = f"{taker.path}: byte {place.offset + place.inner}"
                    at = RowPlace(taker.path, source, place._replace(crc=0), False, "")
                    with contextlib.suppress(UserError):
                        return where, read_line(at)
                    return where, None
                if source not in readers:
                    readers[source] = stack.enter_context(closing(taker.reader()))
                where = f"{taker.files.row_file(*place.file)}: byte {place.offset + place.inner}"
                with contextlib.suppress(OSError, DamagedRow):
                    return where, readers[source].read(place).rstrip(b"\n")
                return where, None

            yield read

    def _note_damaged(self) -> None:
        """Keep which rows of runs were changed after they were written."""
        if self._details is None:
            return
        self._database.execute(_SOLVED)
        found = []
        for attempt, source, *at in self._database.execute(_NEW_PROBLEMS).fetchall():
            taker, place = self._takers[source - 1], Place._make(at)
            if isinstance(taker, RunAttempts):  # a file that was edited is read anew
                path = taker.files.row_file(*place.file)
                said = damaged_row(path, line_number(taker.files, place))
                found.append((attempt, source, str(said)))
        self._note(found)

    def _note(self, problems: Sequence[tuple[int, int, str]]) -> None:
        """Keep what is wrong with rows; of the first in words."""
        if not problems:
            return
        query = "SELECT count(*) FROM problems WHERE problem != ''"
        room = _MOST_PROBLEMS - self._database.execute(query).fetchone()[0]
        values = [
            (attempt, source, said[:_MOST_CHARS] if at < room else "")
            for at, (attempt, source, said) in enumerate(problems)
        ]
        self._database.executemany("INSERT OR REPLACE INTO problems VALUES (?, ?, ?)", values)

    def _remove(self, attempts: Sequence[tuple[int]]) -> None:
        """Remove attempts that are no longer current from the page's tables."""
        if attempts and self._has_details():
            for table in OF_ROLLOUTS:
                self._database.executemany(f"DELETE FROM {table} WHERE id = ?", attempts)

    def _has_details(self) -> bool:
        query = "SELECT count(*) FROM sqlite_schema WHERE name = 'rollouts'"
        return bool(self._database.execute(query).fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a draft, which is dropped, has no journal
                self._database.execute("ROLLBACK")
            raise
