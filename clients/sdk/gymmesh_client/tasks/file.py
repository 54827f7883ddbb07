"""The tasks of a file as a sequence: read when they are needed, any number of times."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import overload

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.problems import TaskProblem, UserError, unreadable
from gymmesh_client.tasks.reader import TaskReader, TaskRow
from gymmesh_client.tasks.shards import WHOLE, Shard


class TaskFile(Sequence[rollout_pb2.Task]):
    """Tasks by index. From the first use on, keeps the place of each row in memory (8 bytes each).

    Every method raises UserError if the file cannot be read, or a row is invalid.

    Args:
        limit: read only this many tasks from the beginning.
        without: line numbers (from 1) to skip, even if they are invalid.
        shard: only this part of the remaining tasks.
    """

    def __init__(
        self,
        reader: TaskReader,
        path: Path,
        limit: int | None = None,
        without: Collection[int] = (),
        shard: Shard = WHOLE,
    ) -> None:
        self._without = without
        self._shard = shard
        self._reader = reader
        self._path = path
        self._limit = limit
        self._offsets: array[int] | None = None
        self._copies: dict[int, str] = {}

    def __iter__(self) -> Iterator[rollout_pb2.Task]:
        return (row.task for row in self._rows())

    def __len__(self) -> int:
        return len(self._found())

    @overload
    def __getitem__(self, index: int) -> rollout_pb2.Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[rollout_pb2.Task]: ...
    def __getitem__(self, index: int | slice) -> rollout_pb2.Task | Sequence[rollout_pb2.Task]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        offset = self._found()[index]
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                raw = file.readline()
        except OSError as error:
            raise unreadable(self._path, error) from None
        entry = self._reader.row(0, raw.removeprefix(b"\xef\xbb\xbf"), self._path.parent)
        if isinstance(entry, TaskProblem):
            found = replace(entry, line=self._line_at(offset)).at(self._path)
            raise UserError(f"{found} (the file changed while it was being read)")
        task = entry.task
        task.task_id = self._copies.get(index % len(self), task.task_id)
        return task

    def _found(self) -> array[int]:
        """Where each row begins."""
        if self._offsets is None:
            self._offsets = array("Q", (row.offset for row in self._rows()))
        return self._offsets

    def _rows(self) -> Iterator[TaskRow]:
        read = (one for one in self._reader.read(self._path) if one.line not in self._without)
        for position, entry in enumerate(islice(read, self._limit)):
            if isinstance(entry, TaskProblem):
                raise UserError(entry.at(self._path))
            if not self._shard.takes(position):
                continue
            if entry.renamed:  # which the row alone does not show
                self._copies[position // self._shard.of] = entry.task.task_id
            yield entry

    def _line_at(self, offset: int) -> int:
        """The line, from 1, that begins there."""
        with self._path.open("rb") as file:
            return 1 + file.read(offset).count(b"\n")
