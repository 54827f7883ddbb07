"""A run's journal, open for writing: commits of rows and records, and the repair of torn tails.

The order of a commit is fixed: rows are on disk before the log names them, and the commit is done
when the log is on disk. If a commit is interrupted, a row that the log does not name was never an
outcome.

Called by `writer`, `output`, `merge` and `compaction`. `log` defines the log's bytes, `row_files`
writes rows, and `state` has the resulting state of the run.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gymmesh_client.disk import Disk, OutputError, cannot_write, existing_locked, lock
from gymmesh_client.log import HEADER, Moves, RunState, encode_frame, frames_of, mapped, unnamed_run
from gymmesh_client.log_records import (
    COMPLETED,
    FAILED,
    FAILURES,
    FORMAT,
    ROWS,
    BadRecord,
    Compacted,
    CurrentOutcome,
    Record,
    RunOpened,
    Superseded,
    decode,
    encode,
)
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.row_files import RowFiles
from gymmesh_client.safe_writes import draft_of
from gymmesh_runtime.text import os_reason


class NewOutcome(msgspec.Struct, gc=False):
    """An outcome to write. `row` is its line of JSON, without the newline."""

    key: bytes
    attempt: int
    status: int
    boundary: int
    row: bytes


LogEntry = NewOutcome | Record


class Journal:
    """One run's journal and row files; used by one thread at a time.

    Get one from `create` or `resume`. After an OutputError nothing more is written.
    """

    def __init__(self, files: OutputFiles, disk: Disk, fd: int) -> None:
        self.files = files
        self.state = RunState()
        self.disk = disk
        self._fd = fd
        self._end = 0
        self._sequence = 0
        self._broken: OutputError | None = None
        self.row_files = RowFiles(files, disk, self.state)

    @staticmethod
    def create(files: OutputFiles, session: dict[str, Any], disk: Disk | None = None) -> Journal:
        """Begin a run and delete the old files. Raises OutputError if the disk cannot be written,
        and UserError if a collector is using the output.
        """
        disk = disk or Disk()
        with existing_locked(files.journal), contextlib.ExitStack() as undo:
            try:
                fd = disk.open(draft_of(files.journal))
                undo.callback(os.close, fd)
                lock(fd, files.journal)
                disk.cut(fd, 0)
                disk.write(fd, HEADER, 0)
                journal = Journal(files, disk, fd)
                journal._end = len(HEADER)
                journal._write([RunOpened({"format": FORMAT, **session})])
                # The old journal goes first: rows without one belong to no run.
                leftovers = files.leftovers()
                files.journal.unlink(missing_ok=True)
                disk.sync_folder(files.journal.parent)
                for path in leftovers:
                    path.unlink(missing_ok=True)
                journal.row_files.create()
                disk.replace(draft_of(files.journal), files.journal)
            except OSError as error:
                raise cannot_write(files.journal, error) from None
            undo.pop_all()
        return journal

    @staticmethod
    def resume(files: OutputFiles, disk: Disk | None = None) -> Journal:
        """Go on with a run: repairs torn tails, and finishes a compaction. Raises OutputError when
        the disk takes nothing, and UserError where there is no journal, it or a row file is
        damaged, or another collector is at work.
        """
        disk = disk or Disk()
        try:
            fd = os.open(files.journal, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{files.journal}: cannot be opened: {os_reason(error)}") from None
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, fd)
            try:
                lock(fd, files.journal)
                journal = Journal(files, disk, fd)
                journal._replay()
            except OSError as error:
                raise cannot_write(files.journal, error) from None
            undo.pop_all()
        return journal

    def commit(self, entries: Sequence[LogEntry]) -> None:
        """Put entries on disk, all or none. Raises OutputError when it cannot be done, and nothing
        more will be; ValueError where a rollout would have two current outcomes.
        """
        if self._broken is not None:
            raise self._broken
        self._check(entries)
        before = self._end
        try:
            outcomes = [entry for entry in entries if isinstance(entry, NewOutcome)]
            places = {}
            for status, kind in ((COMPLETED, ROWS), (FAILED, FAILURES)):
                lines = [one.row + b"\n" for one in outcomes if one.status == status]
                places[status] = iter(self.row_files.append(kind, lines))
            self.row_files.sync()
            records: list[Record] = []
            for one in entries:
                if isinstance(one, NewOutcome):
                    at = next(places[one.status])
                    one = CurrentOutcome(one.key, one.attempt, one.status, one.boundary, at)
                records.append(one)
            self._write(records)
            self.row_files.settle()
        except OSError as error:
            self.row_files.undo()
            with contextlib.suppress(OSError):
                self.disk.cut(self._fd, before)
            raise self.fail(error) from None

    def supersede(self, outcomes: Iterable[CurrentOutcome], why: int) -> None:
        """Make outcomes no longer current; rows stay until a compaction. Raises OutputError."""
        records = [Superseded(one.key, one.attempt, why, one.place) for one in outcomes]
        if records:
            self.commit(records)

    def fail(self, error: OSError) -> OutputError:
        """The error for a disk that takes nothing more; nothing is written from now on."""
        self._broken = cannot_write(self.files.rows, error)
        return self._broken

    def current(self, matches: Callable[[CurrentOutcome], bool]) -> list[CurrentOutcome]:
        """The current outcomes that match, with the places where their rows are now."""
        found: dict[bytes, CurrentOutcome] = {}
        with mapped(self._fd) as data:
            for frame in frames_of(data, self.files):
                for record in decode(frame.payload):
                    if isinstance(record, CurrentOutcome) and matches(record):
                        found[record.key] = record
                    elif isinstance(record, Superseded):
                        found.pop(record.key, None)
                    elif isinstance(record, Compacted):
                        moves = Moves(record)
                        for key, one in found.items():
                            found[key] = one._replace(place=moves.of(one.place))
        return list(found.values())

    def close(self) -> None:
        """Close the files; commits nothing."""
        self.row_files.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    # -- writing ------------------------------------------------------------------------------

    def _check(self, entries: Sequence[LogEntry]) -> None:
        """Raise ValueError where a rollout would have two outcomes, or lose one that is not."""
        changed: dict[bytes, bool] = {}
        for entry in entries:
            if isinstance(entry, NewOutcome):
                has = False
            elif isinstance(entry, Superseded):
                has = True
            else:
                continue
            if changed.get(entry.key, bool(self.state.status(entry.key))) != has:
                raise ValueError(
                    "a rollout would get two outcomes, or lose one that it does not have"
                )
            changed[entry.key] = not has

    def _write(self, records: Sequence[Record]) -> None:
        """Put a commit on disk, and take it in."""
        payload = b"".join(map(encode, records))
        frame = encode_frame(self._sequence, time.time_ns(), payload)
        self.disk.write(self._fd, frame, self._end)
        self.disk.sync(self._fd)
        self._end += len(frame)
        self._sequence += 1
        for record in records:
            self.state.apply(record)

    # -- reading again ------------------------------------------------------------------------

    def _replay(self) -> None:
        with mapped(self._fd) as data:
            self._end = len(HEADER)
            for frame in frames_of(data, self.files):
                try:
                    for record in decode(frame.payload):
                        self.state.apply(record)
                except BadRecord as error:
                    number, path = frame.sequence, self.files.journal
                    raise UserError(
                        f"{path}: commit {number} cannot be understood: {error}"
                    ) from None
                self._end, self._sequence = frame.end, frame.sequence + 1
            torn = len(data) > self._end
        state = self.state
        if not state.session:
            raise unnamed_run(self.files)
        if torn:
            self.disk.cut(self._fd, self._end)
        # The last commit may have been written and not yet on disk when the collector was killed.
        self.disk.sync(self._fd)
        self.files = self.files.of_session(state.session)
        self._finish_compaction()
        self.row_files = RowFiles(self.files, self.disk, state)
        self.row_files.repair()
        self.row_files.create()

    def _finish_compaction(self) -> None:
        """Put files in their places whose compaction is committed, and drop other drafts."""
        for file, number in self.state.compacted.items():
            draft = self.files.compaction_draft(*file, number)
            if draft.exists():
                self.disk.replace(draft, self.files.row_file(*file))
        for draft in self.files.compaction_drafts():
            draft.unlink()
