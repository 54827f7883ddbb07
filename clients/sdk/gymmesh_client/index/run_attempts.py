"""Adds a run to an index: the facts of its log and of its rows. See index.py.

A row is read at the place that the log names. A row that a later compaction moved is read once the
whole log has been read.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from gymmesh_client import log_records as records
from gymmesh_client.boundaries import boundary_name
from gymmesh_client.index.rows import COLUMNS, columns_of
from gymmesh_client.index.tables import INDICES, KEY_INDICES, RunInfo, run_all
from gymmesh_client.log import (
    HEADER,
    LogFrame,
    Moves,
    RunState,
    frames_of,
    mapped,
    opened,
    unnamed_run,
)
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.row_files import DamagedRow, RowReader

OUTCOMES: Final = {records.COMPLETED: "completed", records.FAILED: "failed"}
_STATUS: Final = {name: status for status, name in OUTCOMES.items()}
# Of no interest here; types from 128 on may be skipped by every reader.
_NOT_INDEXED: Final = frozenset((records.RESERVED_TYPE, records.RELEASED_TYPE, *range(128, 256)))
_AT_ONCE: Final = 2000
_MARK: Final = 64
_MOST: Final = 1 << 63  # SQLite's integers are below

PLACE: Final = "row_kind, row_shard, row_offset, row_inner, row_length, row_bytes, row_crc"
"""The columns of a row's place."""
_OF_ROW: Final = f"{', '.join(COLUMNS)}, row_file, damaged"
_OF_LOG: Final = "source, attempt, outcome, current, ended_at, rollout_key, boundary"
_ALL: Final = f"{_OF_LOG}, {PLACE}, {_OF_ROW}"
_INSERT: Final = f"INSERT INTO attempts ({_ALL}) VALUES ({_ALL.count(',') * '?, '}?)"
_NO_ROW: Final = (*(None,) * (len(records.Place._fields) + len(COLUMNS) + 1), 0)
_IN_FILE: Final = f"""
    SELECT id, {PLACE} FROM attempts
    WHERE source = ? AND row_kind = ? AND row_shard = ? AND id > ? ORDER BY id LIMIT {_AT_ONCE}
"""
_DAMAGED: Final = f"""
    SELECT id, {PLACE} FROM attempts WHERE damaged = 1 AND source = ?
    ORDER BY row_kind, row_shard, row_offset, row_inner
"""
_MOVE: Final = f"UPDATE attempts SET ({PLACE}, row_file) = (?, ?, ?, ?, ?, ?, ?, ?) WHERE id = ?"
# Of a rollout at most one outcome is current at a time, so each takes the oldest that still is.
_CURRENT: Final = """
    SELECT min(id) FROM attempts WHERE rollout_key = ? AND source = ? AND current = 1
"""
_SUPERSEDE: Final = "UPDATE attempts SET current = 0, superseded = ? WHERE id = ?"
_SET_COLUMNS: Final = (
    f"UPDATE attempts SET ({_OF_ROW}) = ({_OF_ROW.count(',') * '?, '}?) WHERE id = ?"
)
# An attempt that was tried again has no row; a later one of its rollout has the names.
_NAME_FAILED: Final = """
    UPDATE attempts SET (rollout_id, task_id, repeat, environment) = (
        SELECT rollout_id, task_id, repeat, environment FROM attempts AS other
        WHERE other.rollout_key = attempts.rollout_key AND other.source = attempts.source
            AND other.rollout_id IS NOT NULL LIMIT 1
    ) WHERE rollout_id IS NULL AND row_kind IS NULL AND source = ?
"""


class RunAttempts:
    """A run as a source of an index; its number there is `source`.

    Attributes:
        no_longer: attempts that are no longer current since it was last emptied.
        files: the run's files, laid out as its log says.
    """

    def __init__(self, database: sqlite3.Connection, source: int, files: OutputFiles) -> None:
        self.files = files
        self.no_longer: list[int] = []
        self._database = database
        self._source = source
        self._begin()
        self._unread = True  # rows may have been restored since the index was written
        self._wrong = 0
        self._journal_bytes = self._taken = 0
        self._digest = ""
        self._stem = files.stem

    def _begin(self) -> None:
        self._state = RunState()
        self._end, self._sequence = len(HEADER), 0
        self._held: list[tuple[Any, ...]] = []
        self._names: dict[records.RowFile, str] = {}

    def resume(self, info: RunInfo) -> None:
        """Continue an index that has this of the run."""
        self._state = info.state()
        self._end, self._sequence = info.next
        self._digest, self._journal_bytes = info.digest, info.journal_bytes
        self._wrong, self._stem = info.damaged, info.stem
        self.files = self.files.of_session(self._state.session)

    @property
    def ended(self) -> dict[str, Any] | None:
        """How the run's last session ended; None while it runs, or when it was killed."""
        return self._state.ended

    @property
    def is_new(self) -> bool:
        """Whether nothing was taken in yet."""
        return not self._digest

    def size(self) -> tuple[int, int]:
        """Bytes of rows that were taken in, and bytes of rows in all; the first by the log."""
        log, rows = size_of(self.files.journal), [*self.files.all_shards(), self.files.failures]
        size = sum(map(size_of, rows))
        whole = log == self._journal_bytes
        return size if whole else size * self._end // max(log, self._end), size

    def is_another(self) -> bool:
        """Whether the journal was replaced since it was read, or the run's files have other names
        now. Raises UserError where it cannot be read.
        """
        if self.is_new:
            return False
        with opened(self.files) as log:
            return self._is_another(log) or self._stem != self.files.stem

    def _is_another(self, log: int) -> bool:
        return not self.is_new and digest_of(log, self._end) != self._digest

    def has_news(self) -> bool:
        """Whether there is more in the log than was taken in, or rows may be readable again. Raises
        UserError where the journal cannot be read.
        """
        with opened(self.files) as log:
            return self._unread or os.fstat(log).st_size != self._journal_bytes

    def take(self, most: int) -> bool:
        """Take in what is new, in the caller's transaction: at least `most` attempts where there
        are as many. Whether all of the log is in.

        Raises UserError where the log is damaged, and sqlite3.DatabaseError.
        """
        first, whole = self._taken, True
        with opened(self.files) as log, mapped(log) as data:
            if self._is_another(log):
                return False  # it was replaced this moment; the caller asks `is_another` again
            for frame in frames_of(data, self.files, self._end, self._sequence):
                self._frame(frame)
                self._end, self._sequence = frame.end, frame.sequence + 1
                if self._taken - first >= most:
                    whole = False
                    break
            if not self._state.session:
                raise unnamed_run(self.files)
            self._flush()
            self._digest = digest_of(log, self._end)
            if whole:
                self._journal_bytes = len(data)
        if whole:
            self._settle()
        return whole

    def info(self) -> RunInfo:
        """What the index has of the run, for `sources.state`."""
        state = self._state
        return RunInfo(
            state.session,
            state.ended,
            dict(state.counts),
            [(*file, end) for file, end in sorted(state.ends.items())],
            state.superseded,
            [(*file, number) for file, number in sorted(state.compacted.items())],
            (self._end, self._sequence),
            self._journal_bytes,
            self._digest,
            self.files.stem,
            self._wrong,
        )

    def reader(self) -> RowReader:
        """Reads the run's rows as the log that was taken in places them."""
        return RowReader(self.files, self._state.compacted)

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
            self._state.counts[status] += 1
            self._state.reach(place.file, place.offset + place.extent)
            name = boundary_name(boundary) if boundary else None
            self._hold((attempt, OUTCOMES[status], 1, when, key, name, place))
        elif isinstance(record, records.AttemptFailed):
            name = boundary_name(record.boundary) if record.boundary else None
            self._hold((record.attempt, "failed", 0, when, record.key, name, None))
        elif isinstance(record, records.Superseded):
            self._supersede(record)
        else:
            if isinstance(record, records.Compacted):
                self._move(record)
            self._state.apply_to_run(record)
            if isinstance(record, records.RunOpened):
                self.files = self.files.of_session(record.info)

    def _hold(self, attempt: tuple[Any, ...]) -> None:
        self._held.append(attempt)
        self._taken += 1

    def _flush(self) -> None:
        """Insert what is held, with what the rows say that are where they were written."""
        attempts = []
        with closing(self.reader()) as reader:
            for *about, place in self._held:
                of_row = (*place, *self._columns(reader, place)) if place else _NO_ROW
                attempts.append((self._source, *about, *of_row))
        self._database.executemany(_INSERT, attempts)
        self._held.clear()

    def _supersede(self, record: records.Superseded) -> None:
        self._flush()
        run_all(self._database, KEY_INDICES)
        found = self._database.execute(_CURRENT, (record.key, self._source)).fetchone()
        if found[0] is None:
            raise UserError(
                f"{self.files.journal} is damaged: the journal supersedes an outcome that "
                "the journal does not contain"
            )
        said = self._database.execute("SELECT outcome FROM attempts WHERE id = ?", found)
        self._state.counts[_STATUS[said.fetchone()[0]]] -= 1
        why = records.REASONS.get(record.reason, "")
        self._database.execute(_SUPERSEDE, (why, *found))
        self.no_longer.append(found[0])
        self._state.superseded.append(record.place)

    def _move(self, record: records.Compacted) -> None:
        """Give the rows of a file that was compacted their new places."""
        self._flush()
        run_all(self._database, KEY_INDICES)
        self._unread = True
        moves, after = Moves(record), 0
        in_file = (self._source, record.kind, record.shard)
        while rows := self._database.execute(_IN_FILE, (*in_file, after)).fetchall():
            after = rows[-1][0]
            moved = []
            for number, *at in rows:
                place = _checked(moves.of(records.Place._make(at)))
                moved.append((*place, self._name(place.file), number))
            self._database.executemany(_MOVE, moved)

    # -- what the rows say --------------------------------------------------------------------

    def _settle(self) -> None:
        """All of the log is in: read the rows that were not where it first said, and name attempts
        that have none.
        """
        run_all(self._database, INDICES)
        of_run = (self._source,)
        if self._unread:
            found = self._database.execute(_DAMAGED, of_run).fetchall()
            with closing(self.reader()) as reader:
                columns = [
                    (*self._columns(reader, records.Place._make(at)), number)
                    for number, *at in found
                ]
            self._database.executemany(_SET_COLUMNS, columns)
            self._unread = False
        self._database.execute(_NAME_FAILED, of_run)
        count = "SELECT count(*) FROM attempts WHERE damaged = 1 AND current = 1 AND source = ?"
        self._wrong = self._database.execute(count, of_run).fetchone()[0]

    def _columns(self, reader: RowReader, place: records.Place) -> tuple[Any, ...]:
        """What a row says, the name of its file, and whether it was changed since it was written.

        A row may also have been moved by a compaction further on in the log: `_settle`.
        """
        row = None
        with contextlib.suppress(OSError, DamagedRow):
            row = reader.read(place)
        if row is None:
            self._unread = True
        return (*columns_of(row or b""), self._name(place.file), int(row is None))

    def _name(self, file: records.RowFile) -> str:
        if file not in self._names:
            self._names[file] = self.files.row_file(*file).name
        return self._names[file]


def digest_of(log: int, end: int) -> str:
    """What tells one journal from another that has as many bytes: the last ones hold a checksum and
    a time.
    """
    start = max(0, end - _MARK)
    return os.pread(log, end - start, start).hex()


def size_of(path: Path) -> int:
    """A file's bytes; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _checked(place: records.Place) -> records.Place:
    """The place, if a row can be there; anybody may have written the journal."""
    if place.offset < 0 or place.offset + place.extent >= _MOST:
        raise records.BadRecord("a row's place is impossible for a file")
    return place
