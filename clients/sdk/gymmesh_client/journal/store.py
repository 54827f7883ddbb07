"""A run's journal, open for writing: commits of rows and records, and the repair of torn tails.

The order of a commit is the law: rows are written and on disk before the journal names them,
and the commit is done when the journal is on disk. Whatever is cut off in between, a row that
the journal does not name was never an outcome.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from gymmesh_client.journal.disk import Disk, OutputError, cannot_write, lock, reason
from gymmesh_client.journal.frames import HEADER, Damage, Frame, encode_frame, scan
from gymmesh_client.journal.keys import Slot
from gymmesh_client.journal.lanes import Lanes
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    COMPLETED,
    FAILURES,
    FORMAT,
    ROWS,
    SESSION_TYPE,
    SUPERSEDED,
    BadRecord,
    Erased,
    Outcome,
    Place,
    Record,
    Session,
    Superseded,
    decode,
    encode_all,
    encode_outcomes,
)
from gymmesh_client.journal.state import RunState
from gymmesh_client.problems import UserError
from gymmesh_client.replacing import draft_of

_ERASE_AT_ONCE: Final = 1024
_PAGES_KEPT: Final = 1 << 22


class NewOutcome(msgspec.Struct, gc=False):
    """An outcome to write. `row` is its line of JSON, without the newline."""

    key: bytes
    attempt: int
    status: int
    boundary: int
    row: bytes


class Replace(NamedTuple):
    """An outcome that is no longer current, and perhaps the one that is from now on."""

    old: Outcome
    reason: int
    new: NewOutcome | None = None


Entry = NewOutcome | Replace | Record


class Journal:
    """One run's journal and files of rows; used by one thread at a time.

    Get one from `create` or `resume`. After an OutputError nothing more is written.
    """

    def __init__(self, files: OutputFiles, disk: Disk, fd: int, state: RunState) -> None:
        self.files = files
        self.state = state
        self._disk = disk
        self._fd = fd
        self._end = 0
        self._sequence = 0
        self._broken: OutputError | None = None
        self._lanes = Lanes(files, disk, {}, {})

    @staticmethod
    def create(files: OutputFiles, session: dict[str, Any], disk: Disk | None = None) -> Journal:
        """Begin a run; what was there is gone.

        Raises:
            OutputError: the disk takes nothing.
            UserError: another collector is at work there.
        """
        disk = disk or Disk()
        holding = _lock_existing(files)
        draft = draft_of(files.journal)
        fd = -1
        try:
            fd = disk.open(draft)
            lock(fd, files.journal)
            disk.cut(fd, 0)
            journal = Journal(files, disk, fd, RunState())
            disk.write(fd, HEADER, 0)
            journal._end = len(HEADER)
            journal._write([Session({"format": FORMAT, **session})])
            # The old journal goes first: rows without one belong to no run.
            leftovers = _leftovers(files)
            files.journal.unlink(missing_ok=True)
            disk.sync_folder(files.journal.parent)
            for path in leftovers:
                path.unlink(missing_ok=True)
            journal._lanes.create()
            draft.replace(files.journal)
            disk.sync_folder(files.journal.parent)
        except OSError as error:
            _close(fd)
            raise cannot_write(files.journal, error) from None
        except UserError:
            _close(fd)
            raise
        finally:
            _close(holding)
        return journal

    @staticmethod
    def resume(files: OutputFiles, disk: Disk | None = None) -> Journal:
        """Go on with a run: repairs torn tails, and finishes erasing what was superseded.

        Raises:
            OutputError: the disk takes nothing.
            UserError: there is no journal, it or a file of rows is damaged, or another collector
                is at work there.
        """
        disk = disk or Disk()
        try:
            fd = os.open(files.journal, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{files.journal}: cannot be opened: {reason(error)}") from None
        try:
            lock(fd, files.journal)
            journal = Journal(files, disk, fd, RunState())
            journal._replay()
            return journal
        except OSError as error:
            os.close(fd)
            raise cannot_write(files.journal, error) from None
        except BaseException:
            os.close(fd)
            raise

    def commit(self, entries: Sequence[Entry]) -> None:
        """Put entries on disk, all or none.

        Raises:
            OutputError: it could not be done; nothing more will be.
            ValueError: a rollout would have two current outcomes; nothing was done.
        """
        if self._broken is not None:
            raise self._broken
        slots = self._check(entries)
        before = self._end
        try:
            if slots is not None:
                self._add(cast(Sequence[NewOutcome], entries), slots)
            else:
                self._write(self._rows_first(entries))
            self._lanes.settle()
        except OSError as error:
            self._broken = cannot_write(self.files.rows, error)
            self._lanes.undo()
            with contextlib.suppress(OSError):
                self._disk.cut(self._fd, before)
            raise self._broken from None

    def supersede(self, old: Sequence[Outcome], why: int) -> None:
        """Make outcomes no longer current, and take their rows out of their files.

        Raises:
            OutputError: the disk takes nothing more.
            UserError: a row is damaged, or cannot be taken out of a compressed file.
        """
        self._lanes.rewrites(outcome.place for outcome in old)  # raises where it cannot be done
        for first in range(0, len(old), _ERASE_AT_ONCE):
            self.commit([Replace(one, why) for one in old[first : first + _ERASE_AT_ONCE]])
            self.erase()

    def erase(self) -> None:
        """Take superseded rows out of their files. Raises OutputError and UserError."""
        state = self.state
        if not state.to_erase:
            return
        if not state.rewrites:
            rewrites = self._lanes.rewrites(state.to_erase)
            if rewrites:
                self.commit(rewrites)
        try:
            sizes = self._lanes.erase(state.to_erase, state.rewrites)
        except OSError as error:
            self._broken = cannot_write(self.files.rows, error)
            raise self._broken from None
        self.commit([Erased(tuple(sizes))])

    def outcomes(self) -> Iterator[Outcome | Superseded]:
        """Every outcome, and every time that one was superseded, in the order of the journal."""
        with mapped(self._fd) as data:
            for frame in frames_of(data, self.files):
                for record in decode(frame.payload):
                    if isinstance(record, Outcome | Superseded):
                        yield record

    @property
    def ends(self) -> dict[tuple[int, int], int]:
        """Bytes of each file of rows, by lane and shard."""
        return self._lanes.ends

    def read(self, place: Place) -> bytes:
        """A row with its newline. Raises UserError when it is damaged, and OSError."""
        return self._lanes.read(place)

    def close(self) -> None:
        """Let the files go; commits nothing."""
        self._lanes.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- the order of things ------------------------------------------------------------------

    def _check(self, entries: Sequence[Entry]) -> list[Slot] | None:
        """One current outcome per rollout: a second one is a fault of the caller's.

        Returns where the state keeps the rollouts if each entry is a new outcome, as nearly always.
        """
        new = [entry.key for entry in entries if type(entry) is NewOutcome]
        if new and len(new) == len(entries) == len(set(new)):
            slots = self.state.slots(new)
            if self.state.none_current(slots):
                return slots
        changed: dict[bytes, int] = {}
        status = self.state.status
        for entry in entries:
            if isinstance(entry, NewOutcome):
                key, was, now = entry.key, 0, entry.status
            elif isinstance(entry, Replace):
                key, was, now = entry.old.key, entry.old.status, 0
                if entry.new is not None:
                    now = entry.new.status
            else:
                continue
            if (changed[key] if key in changed else status(key)) != was:
                raise ValueError("a rollout would have two outcomes, or lose one that it has not")
            changed[key] = now
        return None

    def _add(self, new: Sequence[NewOutcome], slots: list[Slot]) -> None:
        """Put new outcomes on disk, and take them in: `_rows_first` and `_write` in one, without
        an object for each record.
        """
        places = self._lanes.write(
            [(ROWS if one.status == COMPLETED else FAILURES, one.row + b"\n") for one in new]
        )
        self._lanes.sync()
        self._put(encode_outcomes(new, places))
        self.state.add_outcomes(new, slots)
        for file, rows in self._lanes.added.items():
            self.state.hold(file, self._lanes.ends[file], rows)

    def _rows_first(self, entries: Sequence[Entry]) -> list[Record]:
        rows: list[tuple[int, bytes]] = []
        for entry in entries:
            if isinstance(entry, NewOutcome):
                rows.append(_line(entry))
            elif isinstance(entry, Replace):
                rows.append((SUPERSEDED, self._lanes.read(entry.old.place)))
                if entry.new is not None:
                    rows.append(_line(entry.new))
        places = (Place(*place) for place in self._lanes.write(rows)) if rows else iter(())
        records: list[Record] = []
        for entry in entries:
            if isinstance(entry, NewOutcome):
                records.append(_outcome(entry, next(places)))
            elif isinstance(entry, Replace):
                old = entry.old
                kept = next(places)
                records.append(Superseded(old.key, old.attempt, entry.reason, old.place, kept))
                if entry.new is not None:
                    records.append(_outcome(entry.new, next(places)))
            else:
                records.append(entry)
        self._lanes.sync()
        return records

    def _write(self, records: Sequence[Record]) -> None:
        self._put(encode_all(records))
        for record in records:
            self.state.apply(record)

    def _put(self, payload: bytes) -> None:
        """Put a commit on disk."""
        frame = encode_frame(self._sequence, time.time_ns(), payload)
        self._disk.write(self._fd, frame, self._end)
        self._disk.sync(self._fd)
        self._end += len(frame)
        self._sequence += 1

    def _replay(self) -> None:
        with mapped(self._fd) as data:
            self._end = len(HEADER)
            for frame in frames_of(data, self.files):
                self._apply(frame)
                self._end, self._sequence = frame.end, frame.sequence + 1
            torn = len(data) > self._end
        if not self.state.session:
            raise UserError(f"{self.files.journal}: is damaged: it does not say what run it is of")
        if torn:
            self._disk.cut(self._fd, self._end)
        # The last commit may have been written and not yet on disk when the collector was killed.
        self._disk.sync(self._fd)
        layout = self.state.session
        self.files = OutputFiles(
            self.files.rows, layout.get("shard_rows"), bool(layout.get("zstd"))
        )
        self._lanes = Lanes(self.files, self._disk, self.state.ends, self.state.rows_in)
        self._lanes.repair(self.state.to_erase)
        self._lanes.create()
        self.erase()

    def _apply(self, frame: Frame) -> None:
        try:
            for record in decode(frame.payload):
                self.state.apply(record)
        except BadRecord as error:
            raise UserError(
                f"{self.files.journal}: commit {frame.sequence} cannot be understood: {error}"
            ) from None


def latest_session(files: OutputFiles) -> dict[str, Any] | None:
    """What the latest session said of a run; None where there is no journal. Changes nothing.

    Raises:
        UserError: the journal is damaged, or another collector is at work there.
    """
    try:
        fd = os.open(files.journal, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{files.journal}: cannot be opened: {reason(error)}") from None
    try:
        lock(fd, files.journal)
        found: dict[str, Any] | None = None
        with mapped(fd) as data:
            for frame in frames_of(data, files):
                # A session is always the first record of its commit.
                if frame.payload[:1] == SESSION_TYPE:
                    record = next(decode(frame.payload))
                    found = record.info if isinstance(record, Session) else found
    except BadRecord as error:
        raise UserError(f"{files.journal}: is damaged: {error}") from None
    finally:
        os.close(fd)
    if found is None:
        raise UserError(f"{files.journal}: is damaged: it does not say what run it is of")
    return found


@contextlib.contextmanager
def mapped(fd: int) -> Iterator[bytes | mmap.mmap]:
    """A file's bytes, as they are now."""
    size = os.fstat(fd).st_size
    if not size:
        yield b""
        return
    with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as data:
        yield data


def frames_of(
    data: bytes | mmap.mmap, files: OutputFiles, start: int = len(HEADER), sequence: int = 0
) -> Iterator[Frame]:
    """The whole commits of a journal, in order; memory does not grow with it.

    Args:
        start: where the first commit to read begins.
        sequence: that commit's number.

    Raises:
        UserError: it is no journal, or damaged elsewhere than at its end.
    """
    if data[: len(HEADER)] != HEADER:
        raise UserError(
            f"{files.journal}: is not a journal of this version of gymmesh, or its beginning is "
            "damaged"
        )
    try:
        kept_from = start - start % mmap.PAGESIZE
        for frame in scan(data, start, sequence):
            yield frame
            if frame.end - kept_from > _PAGES_KEPT:
                kept_from = _forget(data, kept_from, frame.end)
    except Damage as damage:
        raise UserError(
            f"{files.journal}: {damage}, and good ones follow it; nothing was changed. Bring the "
            "file back from a copy, or start anew with --overwrite"
        ) from None


def _forget(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Give back the memory of pages that were read; where the pages kept begin."""
    end -= end % mmap.PAGESIZE
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def _line(new: NewOutcome) -> tuple[int, bytes]:
    return (ROWS if new.status == COMPLETED else FAILURES, new.row + b"\n")


def _outcome(new: NewOutcome, place: Place) -> Outcome:
    return Outcome(new.key, new.attempt, new.status, new.boundary, place)


def _leftovers(files: OutputFiles) -> list[Path]:
    own = [files.failures, files.superseded, files.index, files.trace, files.run, files.skipped]
    return [*files.all_shards(), *own]


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def _lock_existing(files: OutputFiles) -> int:
    try:
        fd = os.open(files.journal, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise cannot_write(files.journal, error) from None
    try:
        lock(fd, files.journal)
    except UserError:
        os.close(fd)
        raise
    return fd
