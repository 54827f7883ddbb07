"""Follows a run or a file as it grows: what is new in it, in batches, from where the last ended.

A follower's `state` is JSON, kept in the index with the rows that it is true of; so an index goes
on where it stopped, whatever killed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gymmesh_client.journal.format.layout import OutputFiles
from gymmesh_client.journal.format.records import FAILURES, ROWS, Compacted, RowFile
from gymmesh_client.journal.log import opened
from gymmesh_client.journal.placed import Placed, placed_rows
from gymmesh_client.journal.places import RunPlaces
from gymmesh_client.journal.stored_rows import (
    checked_rows,
    damaged_row,
    is_compressed,
    open_rows,
)
from gymmesh_client.problems import unreadable
from gymmesh_responses import loads

Json = dict[str, Any]

# Rows at a time: the first batch is small, so that there is something to see at once.
_FIRST: Final = 200
_ROWS: Final = 2_000
_MARK: Final = 64


@dataclass(slots=True)
class Batch:
    """What is new.

    Attributes:
        resets: files all of whose rows are to be forgotten first.
        removed: places (file, offset, inner) of rows that are no longer current.
        rows: new rows, with their files.
        state: of the follower, once all this is taken in.
        problems: what is wrong with rows that are therefore not among `rows`, with their files.
    """

    resets: list[Path] = field(default_factory=list)
    removed: list[tuple[Path, int, int]] = field(default_factory=list)
    rows: list[tuple[Path, Placed]] = field(default_factory=list)
    state: Json = field(default_factory=dict)
    problems: list[tuple[Path, str]] = field(default_factory=list)


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
        self._state = state
        self._places = RunPlaces(files)
        self._mark = ""
        #: Of each row file, how many rows were taken in, and its bytes up to there.
        self._done: dict[RowFile, tuple[int, int]] = {}
        #: The row files that had a damaged row.
        self._damaged: set[RowFile] = set()
        if state:
            self._done = {(kind, shard): (rows, end) for kind, shard, rows, end in state["done"]}
            self._damaged = {(kind, shard) for kind, shard in state["damaged"]}

    @property
    def ended(self) -> Json | None:
        """What the run's last session said at its end; None while it goes on, or was killed."""
        return self._places.state.ended

    def size(self) -> tuple[int, int]:
        """Bytes of rows taken in, and bytes in all."""
        files = self._places.files
        paths = [*files.all_shards(), files.failures]
        return sum(end for _, end in self._done.values()), sum(map(_size, paths))

    def batches(self) -> Iterator[Batch]:
        """What is new since the last time. Raises UserError where a file cannot be read, or the
        journal is damaged.
        """
        with opened(self._files) as log:
            if self._state:
                yield from self._resume(log, self._state)
                self._state = {}
            elif self._mark and self._mark != _mark(log, self._places.position):
                yield self._forget()
            self._places.read(log)
            yield from self._changed(log)
            while (file := self._next_file()) is not None:
                with open_rows(self._places, file, log) as fd:
                    yield from self._changed(log)
                    yield from self._rows_of(file, fd)

    def _resume(self, log: int, state: Json) -> Iterator[Batch]:
        """Know again what an index that was stopped had taken in."""
        if state["mark"] == _mark(log, state["position"]):
            self._places.read(log, state["position"])
            self._places.changes.clear()
            if self._damaged:  # its rows may have been restored since
                yield self._forget_damaged()
        else:
            yield self._forget()

    def _forget(self) -> Batch:
        """The journal is another one than it was."""
        resets = [self._places.files.row_file(*file) for file in self._done]
        self._places, self._done, self._mark = RunPlaces(self._files), {}, ""
        self._damaged = set()
        return Batch(resets)

    def _forget_damaged(self) -> Batch:
        """The files with damaged rows are to be taken in anew."""
        resets = [self._places.files.row_file(*file) for file in sorted(self._damaged)]
        self._done = {file: done for file, done in self._done.items() if file not in self._damaged}
        self._damaged = set()
        self._mark = self._state["mark"]
        return Batch(resets, state=self._stored())

    def _changed(self, log: int) -> Iterator[Batch]:
        """What became of rows that were taken in, as far as the journal was read."""
        self._mark = _mark(log, self._places.position)
        batch = Batch(state=self._stored())
        for change in self._places.changes:
            if isinstance(change, Compacted):
                file = (change.kind, change.shard)
                path = self._places.files.row_file(*file)
                self._done.pop(file, None)
                self._damaged.discard(file)
                batch.resets.append(path)
                batch.removed = [one for one in batch.removed if one[0] != path]
            else:
                place = change.place
                path = self._places.files.row_file(*place.file)
                batch.removed.append((path, place.offset, place.inner))
        self._places.changes.clear()
        if batch.resets or batch.removed:
            batch.state = self._stored()
            yield batch

    def _next_file(self) -> RowFile | None:
        """A file that has rows that are not taken in yet."""
        for file, places in sorted(self._places.by_file.items()):
            if file[0] in (ROWS, FAILURES) and self._done.get(file, (0, 0))[0] < len(places):
                return file
        return None

    def _rows_of(self, file: RowFile, fd: int) -> Iterator[Batch]:
        path, many = self._places.files.row_file(*file), len(self._places.by_file[file])
        first, _ = self._done.get(file, (0, 0))
        rows = checked_rows(self._places, file, fd, first)
        compressed = is_compressed(self._places.files, file)
        most = _ROWS if first else _FIRST
        while taken := list(islice(rows, most)):
            most = _ROWS
            last = taken[-1]
            self._done[file] = (last.number, last.place.offset + last.place.extent)
            if any(one.line is None for one in taken):
                self._damaged.add(file)
            batch = Batch(state=self._stored())
            for place, number, line in taken:
                if line is None:
                    batch.problems.append((path, str(damaged_row(path, number))))
                    continue
                end = place.offset + place.extent
                size = place.length - 1  # without the newline
                extent = place.extent if compressed else size
                placed = Placed(
                    line, place.offset, place.inner, size, extent, end, number, place.crc
                )
                batch.rows.append((path, placed))
            yield batch
        self._done[file] = (many, self._places.state.ends[file])
        yield Batch(state=self._stored())

    def _stored(self) -> Json:
        return {
            "position": self._places.position,
            "mark": self._mark,
            "done": [[*file, *done] for file, done in self._done.items()],
            "damaged": sorted(self._damaged),
        }


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
