"""Adds a file of rows without a journal to an index, and later what was appended to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh_client.index.rows import COLUMNS, columns_of, is_failure
from gymmesh_client.index.run_attempts import size_of
from gymmesh_client.log_records import ROWS
from gymmesh_client.problems import unreadable
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_client.row_files import Placed, placed_rows
from gymmesh_responses import loads

Json = dict[str, Any]

_MARK: Final = 64
_OWN: Final = "source, attempt, outcome, current, ended_at, rollout_key"
_PLACE: Final = "row_kind, row_shard, row_offset, row_inner, row_length, row_bytes, row_file"
_INSERT: Final = (
    f"INSERT INTO attempts ({_OWN}, {_PLACE}, {', '.join(COLUMNS)}) "
    f"VALUES (?, 1, ?, 1, 0, ?, {ROWS}, 0, ?, ?, ?, ?, ?{', ?' * len(COLUMNS)})"
)


class FileAttempts:
    """A file as a source of an index. `state`: what `state` said when the index was left."""

    def __init__(
        self, database: sqlite3.Connection, source: int, path: Path, state: Json | None
    ) -> None:
        self.path = path
        self._database = database
        self._source = source
        self._state = state or {}

    @property
    def ended(self) -> Json | None:
        """A file has no end of its own."""
        return {}

    @property
    def state(self) -> Json:
        """What the index has of the file, for `sources.state`."""
        return self._state

    def size(self) -> tuple[int, int]:
        """Bytes taken in, and bytes in all."""
        return self._state.get("position", 0), size_of(self.path)

    def is_another(self) -> bool:
        """Whether the file was replaced or edited since it was read. Raises UserError where it
        cannot be read.
        """
        if not self._state:
            return False
        try:
            with self.path.open("rb") as file:
                fd, position = file.fileno(), self._state["position"]
                about = os.fstat(fd)
                if position > about.st_size or self._state["mark"] != _mark(fd, position):
                    return True
                edited: bool = self._state["changed"] != about.st_mtime_ns
                return edited and position == about.st_size
        except OSError as error:
            raise unreadable(self.path, error) from None

    def has_news(self) -> bool:
        """Whether there is more in the file than was taken in. Raises UserError where it cannot be
        read.
        """
        return not self._state or self._state["size"] != size_of(self.path)

    def take(self, most: int) -> bool:
        """Take in what is new, in the caller's transaction: this many rows where there are as many.
        Whether all of the file is in. Raises UserError where it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                return self._take(file.fileno(), most)
        except OSError as error:
            raise unreadable(self.path, error) from None

    def _take(self, fd: int, most: int) -> bool:
        about, position = os.fstat(fd), self._state.get("position", 0)
        size, compressed = about.st_size, self.path.name.endswith(".zst")
        rows = placed_rows(self.path, fd, position, size, compressed=compressed)
        taken, whole = list[Placed](), True
        for row in rows:
            if len(taken) >= most and row.offset != taken[-1].offset:  # else of the same frame
                whole = False
                break
            taken.append(row)
        if taken and not compressed and not _is_whole(fd, size, taken[-1]):
            taken.pop()
        self._insert(taken)
        if taken:
            position = taken[-1].end
        self._state = {
            "position": position,
            "mark": _mark(fd, position),
            "changed": about.st_mtime_ns,
            "size": size if whole else 0,
        }
        return whole

    def _insert(self, rows: Sequence[Placed]) -> None:
        values = []
        for line, offset, inner, length, extent, *_ in rows:
            columns = columns_of(line)
            outcome = "failed" if is_failure(line) else "completed"
            key = rollout_key(str(columns[0] or ""))
            place = (offset, inner, length, extent, self.path.name)
            values.append((self._source, outcome, key, *place, *columns))
        self._database.executemany(_INSERT, values)


def _mark(fd: int, position: int) -> str:
    """Bytes by which to notice that another file of the same size took its place."""
    start = max(0, position - _MARK)
    return os.pread(fd, min(_MARK, position), 0).hex() + os.pread(fd, position - start, start).hex()


def _is_whole(fd: int, size: int, last: Placed) -> bool:
    """Whether a line is whole: it ends in a newline, or is JSON at the file's end without one."""
    if last.end < size or os.pread(fd, 1, size - 1) == b"\n":
        return True
    try:
        return last.line.rstrip().endswith(b"}") and loads(last.line) is not None
    except ValueError:  # more of it is still to be written
        return False
