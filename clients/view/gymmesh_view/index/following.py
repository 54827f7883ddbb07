"""Follows a run or a file as it grows: what is new in it, in batches, from where the last ended.

A follower's `state` is JSON, kept in the index with the rows that it is true of; so an index goes
on where it stopped, whatever killed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from gymmesh_client import OutputFiles
from gymmesh_client.journal.format.frames import HEADER
from gymmesh_client.journal.format.records import (
    FAILURES,
    RELEASED_TYPE,
    RESERVED_TYPE,
    ROWS,
    Compacted,
    CurrentOutcome,
    Place,
    RowFile,
    Superseded,
    bodies,
    decode_one,
)
from gymmesh_client.journal.log import frames_of, mapped, opened
from gymmesh_client.journal.row_files import open_row_file
from gymmesh_client.journal.state import RunState
from gymmesh_client.problems import unreadable
from gymmesh_responses import loads
from gymmesh_view.rows.places import Placed, placed_rows

Json = dict[str, Any]

# Rows at a time: the first batch is small, so that there is something to see at once.
_FIRST: Final = 200
_ROWS: Final = 2_000
_OUTCOMES: Final = 20_000
_MARK: Final = 64
_SKIPPED: Final = frozenset((RESERVED_TYPE, RELEASED_TYPE, *range(128, 256)))


@dataclass(slots=True)
class Batch:
    """What is new.

    Attributes:
        resets: files all of whose rows are to be forgotten first.
        removed: places (file, offset, inner) of rows that are no longer current.
        rows: new rows, with their files.
        state: of the follower, once all this is taken in.
    """

    resets: list[Path] = field(default_factory=list)
    removed: list[tuple[Path, int, int]] = field(default_factory=list)
    rows: list[tuple[Path, Placed]] = field(default_factory=list)
    state: Json = field(default_factory=dict)


class FileFollower:
    """Follows a file of rows without a journal."""

    def __init__(self, path: Path, state: Json) -> None:
        self.path = path
        self._state = state

    @property
    def ended(self) -> Json | None:
        """A file has no end of its own."""
        return {}

    def size(self) -> tuple[int, int]:
        """Bytes taken in, and bytes in all."""
        return self._state.get("position", 0), _size(self.path)

    def batches(self) -> Iterator[Batch]:
        """What is new since the last time. Raises UserError where the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                yield from self._batches(file.fileno())
        except OSError as error:
            raise unreadable(self.path, error) from None

    def _batches(self, fd: int) -> Iterator[Batch]:
        about = os.fstat(fd)
        size, changed = about.st_size, about.st_mtime_ns
        position, resets = self._state.get("position", 0), list[Path]()
        same = position <= size and self._state.get("mark") == _mark(fd, position)
        if position == size and self._state.get("changed") != changed:
            same = False  # edited in place
        if self._state and not same:
            position, resets = 0, [self.path]
        elif position == size and self._state:
            return
        compressed = self.path.name.endswith(".zst")
        rows = placed_rows(self.path, fd, position, size, compressed=compressed)
        most = _FIRST if not position else _ROWS
        while taken := list(islice(rows, most)):
            most = _ROWS
            if not compressed and taken[-1].end == size and not _whole_line(fd, size, taken[-1]):
                taken.pop()
            if taken:
                position = taken[-1].end
            yield self._batch(fd, resets, taken, position, changed)
            resets = []
        if resets or not self._state:
            yield self._batch(fd, resets, [], position, changed)

    def _batch(
        self, fd: int, resets: list[Path], rows: list[Placed], position: int, changed: int
    ) -> Batch:
        self._state = {"position": position, "mark": _mark(fd, position), "changed": changed}
        return Batch(resets, [], [(self.path, one) for one in rows], self._state)


class RunFollower:
    """Follows a run by its journal: only rows that it names, and of these the current ones."""

    def __init__(self, files: OutputFiles, state: Json) -> None:
        self._files = files
        self._run = RunState()
        self._done: dict[RowFile, int] = {}
        self._position, self._sequence, self._mark = len(HEADER), 0, ""
        if state:
            self._restore(state)

    @property
    def ended(self) -> Json | None:
        """What the run's last session said at its end; None while it goes on, or was killed."""
        return self._run.ended

    def size(self) -> tuple[int, int]:
        """Bytes of rows taken in, and bytes in all."""
        paths = [*self._files.all_shards(), self._files.failures]
        return sum(self._done.values()), sum(map(_size, paths))

    def batches(self) -> Iterator[Batch]:
        """What is new since the last time. Raises UserError where a file cannot be read, or is
        damaged.
        """
        with opened(self._files) as fd:
            if self._mark and self._mark != _mark(fd, self._position):
                yield self._forget()
            yield from self._rows()  # what an index that was stopped had not come to
            with mapped(fd) as data:
                while True:
                    news, more = self._read_journal(fd, data)
                    if news.resets or news.removed:
                        yield news
                    yield from self._rows()
                    if not more:
                        break

    def _forget(self) -> Batch:
        """The journal is another one than it was."""
        resets = [self._files.row_file(*file) for file in self._done]
        self._run, self._done = RunState(), {}
        self._position, self._sequence, self._mark = len(HEADER), 0, ""
        return Batch(resets, [], [], self._stored())

    def _read_journal(self, fd: int, data: Any) -> tuple[Batch, bool]:
        """Read on in the journal: what became of rows taken in, and whether there was anything."""
        batch, outcomes, read = Batch(), 0, False
        for frame in frames_of(data, self._files, self._position, self._sequence):
            read = True
            for kind, body in bodies(frame.payload):
                if kind not in _SKIPPED:
                    outcomes += self._apply(decode_one(kind, body), batch)
            self._position, self._sequence = frame.end, frame.sequence + 1
            if outcomes >= _OUTCOMES or (outcomes and not self._done):
                break
        if read:
            self._mark = _mark(fd, self._position)
        batch.state = self._stored()
        return batch, read

    def _apply(self, record: Any, batch: Batch) -> int:
        """Take in one record; 1 for an outcome."""
        run = self._run
        if isinstance(record, CurrentOutcome):
            kind, shard, offset, _, _, extent, _ = record.place
            run.reach((kind, shard), offset + extent)
            return 1
        if isinstance(record, Superseded):
            place = record.place
            run.superseded.append(place)
            path = self._files.row_file(*place.file)
            batch.removed.append((path, place.offset, place.inner))
            return 0
        run.apply_to_run(record)
        if isinstance(record, Compacted):
            file = (record.kind, record.shard)
            path = self._files.row_file(*file)
            self._done[file] = 0
            batch.resets.append(path)
            batch.removed = [one for one in batch.removed if one[0] != path]
        return 0

    def _rows(self) -> Iterator[Batch]:
        """The rows that the journal names and that are not taken in yet."""
        for file, end in sorted(self._run.ends.items()):
            if file[0] in (ROWS, FAILURES) and self._done.get(file, 0) < end:
                path = self._files.row_file(*file)
                try:
                    yield from self._rows_of(file, path, end)
                except OSError as error:
                    raise unreadable(path, error) from None

    def _rows_of(self, file: RowFile, path: Path, end: int) -> Iterator[Batch]:
        without = {(one.offset, one.inner) for one in self._run.superseded if one.file == file}
        compressed = file[0] == ROWS and self._files.compressed
        fd = open_row_file(self._files, file, self._run.compacted)
        try:
            start = self._done.get(file, 0)
            rows: Iterator[Placed] = placed_rows(path, fd, start, end, compressed=compressed)
            while taken := list(islice(rows, _ROWS if start else _FIRST)):
                # The last rows of a frame, and the next frame's first, may be in two batches.
                while compressed and (row := next(rows, None)) is not None:
                    if row.offset != taken[-1].offset:
                        rows = chain([row], rows)
                        break
                    taken.append(row)
                start = self._done[file] = taken[-1].end
                kept = [one for one in taken if (one.offset, one.inner) not in without]
                yield Batch([], [], [(path, one) for one in kept], self._stored())
            self._done[file] = max(end, start)
        finally:
            os.close(fd)

    def _stored(self) -> Json:
        run = self._run
        return {
            "position": self._position,
            "sequence": self._sequence,
            "mark": self._mark,
            "ended": run.ended,
            "ends": [[*file, end] for file, end in run.ends.items()],
            "superseded": [list(place) for place in run.superseded],
            "compacted": [[*file, number] for file, number in run.compacted.items()],
            "done": [[*file, end] for file, end in self._done.items()],
        }

    def _restore(self, state: Json) -> None:
        run = self._run
        self._position, self._sequence = state["position"], state["sequence"]
        self._mark = state["mark"]
        run.ended = state["ended"]
        run.ends = {(kind, shard): end for kind, shard, end in state["ends"]}
        run.superseded = [Place._make(place) for place in state["superseded"]]
        run.compacted = {(kind, shard): number for kind, shard, number in state["compacted"]}
        self._done = {(kind, shard): end for kind, shard, end in state["done"]}


def _mark(fd: int, position: int) -> str:
    """What tells a file from another one that has as many bytes."""
    start = max(0, position - _MARK)
    return os.pread(fd, min(_MARK, position), 0).hex() + os.pread(fd, position - start, start).hex()


def _whole_line(fd: int, size: int, last: Placed) -> bool:
    """Whether the last line of a file is whole: it ends in a newline, or is JSON without one."""
    if os.pread(fd, 1, size - 1) == b"\n":
        return True
    try:
        return last.line.rstrip().endswith(b"}") and loads(last.line) is not None
    except ValueError:  # more of it is still to be written
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
