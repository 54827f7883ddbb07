"""Writes the index of a run: what the log says, with what the rows say. See index.py.

A row is read where the log says that it was written. One that a later compaction moved is not there
any more, and is read once the whole log is.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh_client.boundaries import boundary_name
from gymmesh_client.journal.format import records
from gymmesh_client.journal.format.frames import HEADER, LogFrame
from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.index.rows import COLUMNS, columns_of
from gymmesh_client.journal.index.tables import (
    APPLICATION_ID,
    INDICES,
    KEY_INDICES,
    TABLES,
    VERSION,
    RunInfo,
)
from gymmesh_client.journal.log import frames_of, unnamed_run
from gymmesh_client.journal.moves import Moves
from gymmesh_client.journal.row_files import DamagedRow, RowReader
from gymmesh_client.journal.state import RunState
from gymmesh_client.problems import UserError

OUTCOMES: Final = {records.COMPLETED: "completed", records.FAILED: "failed"}
# Of no interest here; types from 128 on may be skipped by every reader.
_NOT_INDEXED: Final = frozenset((records.RESERVED_TYPE, records.RELEASED_TYPE, *range(128, 256)))
_AT_ONCE: Final = 2000
_MOST: Final = 1 << 63  # SQLite's integers are below

_PLACE: Final = "row_kind, row_shard, row_offset, row_inner, row_length, row_bytes, row_crc"
_OF_ROW: Final = f"{', '.join(COLUMNS)}, row_file, damaged"
_INSERT: Final = f"""
    INSERT INTO attempts
        (attempt, outcome, current, ended_at, rollout_key, boundary, {_PLACE}, {_OF_ROW})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_NO_ROW: Final = (*(None,) * (len(records.Place._fields) + len(COLUMNS) + 1), 0)
_PLACES: Final = f"SELECT rowid, {_PLACE} FROM attempts"
_IN_FILE: Final = (
    f"{_PLACES} WHERE row_kind = ? AND row_shard = ? AND rowid > ? ORDER BY rowid LIMIT {_AT_ONCE}"
)
_UNREAD: Final = (
    f"{_PLACES} WHERE rowid > ? AND row_kind IS NOT NULL AND rollout_id IS NULL "
    "ORDER BY row_kind, row_shard, row_offset, row_inner"
)
_MOVE: Final = f"UPDATE attempts SET ({_PLACE}) = (?, ?, ?, ?, ?, ?, ?) WHERE rowid = ?"
# Of a rollout at most one outcome is current at a time, so each takes the oldest that still is.
_CURRENT: Final = "SELECT min(rowid) FROM attempts WHERE rollout_key = ? AND current = 1"
_SUPERSEDE: Final = "UPDATE attempts SET current = 0, superseded = ? WHERE rowid = ?"
_NAME_SUPERSEDED: Final = f"UPDATE attempts SET row_file = ? WHERE row_kind = {records.SUPERSEDED}"
_SET_COLUMNS: Final = (
    f"UPDATE attempts SET ({_OF_ROW}) = (?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE rowid = ?"
)
_DAMAGED: Final = "SELECT count(*) FROM attempts WHERE damaged AND current"
# An attempt that was tried again has no row; a later one of its rollout says what it was of.
_NAME_FAILED: Final = """
    UPDATE attempts SET (rollout_id, task_id, repeat, environment) = (
        SELECT rollout_id, task_id, repeat, environment FROM attempts AS other
        WHERE other.rollout_key = attempts.rollout_key AND other.rollout_id IS NOT NULL LIMIT 1
    ) WHERE rollout_id IS NULL AND row_kind IS NULL
"""


class IndexBuilder:
    """Writes one index, to an empty file or to a copy of the older one, which says `older`."""

    def __init__(self, files: OutputFiles, path: Path, older: RunInfo | None) -> None:
        self._state = older.state() if older else RunState()
        self._files = files.of_session(self._state.session) if older else files
        self._end, self._sequence = older.next if older else (len(HEADER), 0)
        self._held: list[tuple[Any, ...]] = []
        self._names: dict[records.RowFile, str] = {}
        self._indexed = older is not None  # whether there are the indices that superseding needs
        self._database = sqlite3.connect(path, isolation_level=None)
        run = self._database.execute
        # A draft that a crash leaves behind is never read, so nothing needs to be rolled back.
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        if older is None:
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {VERSION}")
            self._database.executescript(TABLES)
        (self._older_rows,) = run("SELECT coalesce(max(rowid), 0) FROM attempts").fetchone()

    def build(self, data: bytes | mmap.mmap, digest: str) -> None:
        """Read the log, from where the older index ends, and make the index whole.

        Raises UserError where the log is damaged, and sqlite3.DatabaseError where the index cannot
        be written or the older one is damaged.
        """
        self._database.execute("BEGIN")
        try:
            for frame in frames_of(data, self._files, self._end, self._sequence):
                self._frame(frame)
                self._end, self._sequence = frame.end, frame.sequence + 1
        except records.BadRecord as error:
            raise UserError(f"{self._files.journal}: is damaged: {error}") from None
        if not self._state.session:
            raise unnamed_run(self._files)
        self._flush()
        if self._state.compacted:
            self._read_moved()
        self._database.execute("COMMIT")
        self._database.executescript(INDICES)
        self._database.execute("BEGIN")
        self._database.execute(_NAME_SUPERSEDED, (self._files.superseded.name,))
        self._database.execute(_NAME_FAILED)
        current = dict(
            self._database.execute(
                "SELECT outcome, count(*) FROM attempts WHERE current = 1 GROUP BY outcome"
            ).fetchall()
        )
        state = self._state
        info = RunInfo(
            state.session,
            state.ended,
            {status: current.get(name, 0) for status, name in OUTCOMES.items()},
            [(*file, end) for file, end in sorted(state.ends.items())],
            state.superseded,
            [(*file, number) for file, number in sorted(state.compacted.items())],
            (self._end, self._sequence),
            len(data),
            digest,
            self._files.stem,
            self._database.execute(_DAMAGED).fetchone()[0],
        )
        values = [(key, json.dumps(value)) for key, value in msgspec.structs.asdict(info).items()]
        self._database.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", values)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # -- what the log says --------------------------------------------------------------------

    def _frame(self, frame: LogFrame) -> None:
        when = min(frame.time_unix_nano, _MOST - 1)
        for kind, body in records.bodies(frame.payload):
            if kind not in _NOT_INDEXED:
                self._record(records.decode_one(kind, body), when)
        if len(self._held) >= _AT_ONCE:
            self._flush()

    def _record(self, record: records.Record, when: int) -> None:
        if isinstance(record, records.CurrentOutcome):
            key, attempt, status, boundary, place = record
            if status not in OUTCOMES:
                raise records.BadRecord(f"an outcome of kind {status}")
            _checked(place)
            self._state.reach(place.file, place.offset + place.extent)
            name = boundary_name(boundary) if boundary else None
            self._held.append((attempt, OUTCOMES[status], 1, when, key, name, place))
        elif isinstance(record, records.AttemptFailed):
            name = boundary_name(record.boundary) if record.boundary else None
            self._held.append((record.attempt, "failed", 0, when, record.key, name, None))
        elif isinstance(record, records.Superseded):
            self._supersede(record)
        else:
            if isinstance(record, records.Compacted):
                self._move(record)
            self._state.apply_to_run(record)
            if isinstance(record, records.RunOpened):
                self._files = self._files.of_session(record.info)

    def _flush(self) -> None:
        """Insert what is held, with what the rows say that are where they were written."""
        attempts = []
        with closing(RowReader(self._files, self._state.compacted)) as reader:
            for *about, place in self._held:
                of_row = (*place, *self._columns(reader, place)) if place else _NO_ROW
                attempts.append((*about, *of_row))
        self._database.executemany(_INSERT, attempts)
        self._held.clear()

    def _supersede(self, record: records.Superseded) -> None:
        self._flush()
        if not self._indexed:
            for statement in KEY_INDICES.split(";"):
                self._database.execute(statement)
            self._indexed = True
        (rowid,) = self._database.execute(_CURRENT, (record.key,)).fetchone()
        if rowid is None:
            raise UserError(
                f"{self._files.journal}: is damaged: an outcome is superseded that there was not"
            )
        self._database.execute(_SUPERSEDE, (records.REASONS.get(record.reason, ""), rowid))
        self._state.superseded.append(record.place)

    def _move(self, record: records.Compacted) -> None:
        """Give the rows of a file that was compacted their new places."""
        self._flush()
        moves, after = Moves(record), 0
        while rows := self._database.execute(
            _IN_FILE, (record.kind, record.shard, after)
        ).fetchall():
            after = rows[-1][0]
            moved = [(*_checked(moves.of(records.Place._make(at))), rowid) for rowid, *at in rows]
            self._database.executemany(_MOVE, moved)

    # -- what the rows say --------------------------------------------------------------------

    def _read_moved(self) -> None:
        """Read the rows that were not where the log says that they were written."""
        rows = self._database.execute(_UNREAD, (self._older_rows,))
        with closing(RowReader(self._files, self._state.compacted)) as reader:
            while some := rows.fetchmany(_AT_ONCE):
                columns = [
                    (*self._columns(reader, records.Place._make(at)), rowid) for rowid, *at in some
                ]
                self._database.executemany(_SET_COLUMNS, columns)

    def _columns(self, reader: RowReader, place: records.Place) -> tuple[Any, ...]:
        """What a row says, the name of its file, and whether it was changed since it was written.

        A row may also have been moved by a compaction further on in the log: `_read_moved`.
        """
        row = None
        with contextlib.suppress(OSError, DamagedRow):
            row = reader.read(place)
        file = place.file
        if file not in self._names:
            self._names[file] = self._files.row_file(*file).name
        return (*columns_of(row or b""), self._names[file], int(row is None))


def _checked(place: records.Place) -> records.Place:
    """The place, if a row can be there; anybody may have written the journal."""
    if place.offset < 0 or place.offset + place.extent >= _MOST:
        raise records.BadRecord("a row lies where no file can have one")
    return place
