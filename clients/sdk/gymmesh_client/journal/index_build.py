"""Writes the index of a run from its journal and its rows. See `index`."""

from __future__ import annotations

import json
import mmap
import os
import sqlite3
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from gymmesh_client.journal.frames import HEADER, Frame
from gymmesh_client.journal.index_rows import boundary_name, columns_of
from gymmesh_client.journal.index_schema import APPLICATION_ID, INDICES, TABLES, VERSION
from gymmesh_client.journal.lanes import Packer
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILED,
    REASONS,
    RELEASED_TYPE,
    RESERVED_TYPE,
    REWRITTEN_TYPE,
    AttemptFailed,
    BadRecord,
    Outcome,
    Place,
    Record,
    Session,
    Superseded,
    bodies,
    decode_one,
)
from gymmesh_client.journal.state import RunState
from gymmesh_client.journal.store import frames_of
from gymmesh_client.problems import UserError

_OUTCOMES: Final = {COMPLETED: "completed", FAILED: "failed"}
# Of no interest here; types from 128 on may be skipped by every reader.
_NOT_INDEXED: Final = frozenset((RESERVED_TYPE, RELEASED_TYPE, REWRITTEN_TYPE, *range(128, 256)))
_MOST_HELD: Final = 2000
_MOST: Final = 1 << 63  # SQLite's integers are below
_SUPERSEDE: Final = """
    UPDATE attempts SET current = 0, superseded = :why, row_file = :file, row_offset = :offset,
        row_bytes = :extent, lane = :lane, shard = :shard, row_inner = :inner,
        row_length = :length, row_crc = :crc, rollout_id = :rollout_id, task_id = :task_id,
        repeat = :repeat, environment = :environment, reason = :reason, reward = :reward,
        tokens = :tokens
    WHERE rowid = (
        SELECT min(rowid) FROM attempts WHERE rollout_key = :key AND current = 1
    )
"""
# An attempt that was tried again has no row; a later one of its rollout says what it was of.
_NAME_FAILED: Final = """
    UPDATE attempts SET (rollout_id, task_id, repeat, environment) = (
        SELECT rollout_id, task_id, repeat, environment FROM attempts AS other
        WHERE other.rollout_key = attempts.rollout_key AND other.rollout_id IS NOT NULL LIMIT 1
    ) WHERE rollout_id IS NULL AND row_file IS NULL
"""


class _Attempt(NamedTuple):
    """A row of the table `attempts`: its columns, of which docs/journal.md tells."""

    attempt: int
    outcome: str
    current: int
    ended_at: int
    rollout_key: bytes
    boundary: str | None
    rollout_id: str | None = None
    task_id: str | None = None
    repeat: int | None = None
    environment: str | None = None
    reason: str | None = None
    reward: float | None = None
    tokens: int | None = None
    row_file: str | None = None
    lane: int | None = None
    shard: int | None = None
    row_offset: int | None = None
    row_inner: int | None = None
    row_length: int | None = None
    row_bytes: int | None = None
    row_crc: int | None = None


_INSERT: Final = (
    f"INSERT INTO attempts ({', '.join(_Attempt._fields)}) "
    f"VALUES ({', '.join('?' * len(_Attempt._fields))})"
)


class IndexBuilder:
    """Writes one index; a context manager. Memory grows with what was superseded, no more.

    Args:
        files: the run's files.
        path: an empty file, or a copy of an older index of the run.
        older: what that index says of the run (`Index.info`); None for an empty file.
    """

    def __init__(self, files: OutputFiles, path: Path, older: dict[str, Any] | None) -> None:
        self._files = files
        self._end, self._sequence = len(HEADER), 0
        self._state = RunState()
        self._rows = _Rows(files)
        self._held: list[_Attempt] = []
        self._superseded: list[Superseded] = []
        self._database = sqlite3.connect(path, isolation_level=None)
        run = self._database.execute
        # A draft that a crash leaves behind is never read, so nothing needs to be rolled back.
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        if older is None:
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {VERSION}")
            self._database.executescript(TABLES)
        else:
            self._continue(older)

    def take(self, data: bytes | mmap.mmap) -> int:
        """Read the journal, from where the older index ends; the bytes of it that were there.

        Raises:
            UserError: it is damaged.
            sqlite3.DatabaseError: the index cannot be written, or the older one is damaged.
        """
        self._database.execute("BEGIN")
        try:
            for frame in frames_of(data, self._files, self._end, self._sequence):
                self._frame(frame)
                self._end, self._sequence = frame.end, frame.sequence + 1
        except BadRecord as error:
            raise UserError(f"{self._files.journal}: is damaged: {error}") from None
        return len(data)

    def finish(self, info: dict[str, Any]) -> None:
        """Make the index whole. `info` is kept beside what the journal says of the run.

        Raises as `take`.
        """
        self._flush()
        self._database.execute("COMMIT")
        self._database.executescript(INDICES)
        self._database.execute("BEGIN")
        self._supersede()
        self._database.execute(_NAME_FAILED)
        current = dict(
            self._database.execute(
                "SELECT outcome, count(*) FROM attempts WHERE current = 1 GROUP BY outcome"
            ).fetchall()
        )
        state = self._state
        info |= {
            "session": state.session,
            "ended": state.ended,
            "counts": {str(status): current.get(name, 0) for status, name in _OUTCOMES.items()},
            "ends": [[*file, end] for file, end in sorted(state.ends.items())],
            "to_erase": [list(place) for place in state.to_erase],
            "next": [self._end, self._sequence],
        }
        values = [(key, json.dumps(value)) for key, value in info.items()]
        self._database.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", values)
        self._database.execute("COMMIT")

    def __enter__(self) -> IndexBuilder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()
        self._rows.close()

    def _continue(self, older: dict[str, Any]) -> None:
        state = self._state
        state.session, state.ended = older["session"], older["ended"]
        state.ends = {(lane, shard): end for lane, shard, end in older["ends"]}
        state.to_erase = [Place(*place) for place in older["to_erase"]]
        self._end, self._sequence = older["next"]
        self._rows.files = _layout(self._files, state.session)

    def _frame(self, frame: Frame) -> None:
        when = min(frame.time_unix_nano, _MOST - 1)
        for kind, body in bodies(frame.payload):
            if kind not in _NOT_INDEXED:
                self._record(decode_one(kind, body), when)
        if len(self._held) >= _MOST_HELD:
            self._flush()

    def _record(self, record: Record, when: int) -> None:
        if isinstance(record, Outcome):
            self._outcome(record, when)
        elif isinstance(record, AttemptFailed):
            name = boundary_name(record.boundary)
            self._held.append(_Attempt(record.attempt, "failed", 0, when, record.key, name))
        elif isinstance(record, Superseded):
            self._superseded.append(record)
            self._hold(record.kept)
            self._state.to_erase.append(record.was)
        else:
            self._state.apply(record)
            if isinstance(record, Session):
                self._rows.files = _layout(self._files, record.info)

    def _outcome(self, record: Outcome, when: int) -> None:
        key, attempt, status, boundary, place = record
        if status not in _OUTCOMES:
            raise BadRecord(f"an outcome of kind {status}")
        self._hold(place)
        self._held.append(
            _Attempt(
                attempt,
                _OUTCOMES[status],
                1,
                when,
                key,
                boundary_name(boundary),
                *columns_of(self._rows.read(place)),
                self._rows.name(place),
                *place,
            )
        )

    def _hold(self, place: Place) -> None:
        """Note that a file has a row there."""
        end = place.offset + place.extent
        if end >= _MOST:
            raise BadRecord("a row lies behind the end of any file")
        self._state.hold(place[:2], end, 0)

    def _flush(self) -> None:
        self._database.executemany(_INSERT, self._held)
        self._held.clear()

    def _supersede(self) -> None:
        """Mark the outcomes that were superseded, in that order: of a rollout at most one is
        current at a time, so each takes the oldest one that is not marked.
        """
        for record in self._superseded:
            kept = record.kept
            changed = self._database.execute(
                _SUPERSEDE,
                {
                    "key": record.key,
                    "why": REASONS.get(record.reason, ""),
                    "file": self._rows.name(kept),
                    **kept._asdict(),
                    **columns_of(self._rows.read(kept))._asdict(),
                },
            ).rowcount
            if changed != 1:
                raise UserError(
                    f"{self._files.journal}: is damaged: an outcome is superseded that there was "
                    "not"
                )


class _Rows:
    """Reads rows one after another, a compressed frame once."""

    def __init__(self, files: OutputFiles) -> None:
        self.files = files
        self._names: dict[tuple[int, int], str] = {}
        self._file: tuple[int, int] | None = None
        self._fd = -1
        self._frame: tuple[tuple[int, int], int] | None = None
        self._rows = b""
        self._packer: Packer | None = None

    def read(self, place: Place) -> bytes:
        """A row with its newline; empty where it is gone or damaged, which its reader reports."""
        try:
            data = self._read(place)
        except (OSError, ValueError, UserError):
            return b""
        return data if zlib.crc32(data) == place.crc else b""

    def name(self, place: Place) -> str:
        """The name of a row's file."""
        file = (place.lane, place.shard)
        if file not in self._names:
            self._names[file] = self.files.lane(*file).name
        return self._names[file]

    def close(self) -> None:
        """Close the file that is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self, place: Place) -> bytes:
        file = (place.lane, place.shard)
        if file != self._file:
            self.close()
            self._file = None
            self._fd = os.open(self.files.lane(*file), os.O_RDONLY | os.O_CLOEXEC)
            self._file, self._frame = file, None
        if place.extent == place.length:
            data = os.pread(self._fd, place.length, place.offset)
            if not data.startswith(b"\x28\xb5\x2f\xfd"):
                return data
        if self._frame != (file, place.offset):
            self._packer = self._packer or Packer()
            frame = os.pread(self._fd, place.extent, place.offset)
            self._rows, self._frame = self._packer.unpack(frame), (file, place.offset)
        return self._rows[place.inner : place.inner + place.length]


def _layout(files: OutputFiles, session: dict[str, Any]) -> OutputFiles:
    return OutputFiles(files.rows, session.get("shard_rows"), bool(session.get("zstd")))
