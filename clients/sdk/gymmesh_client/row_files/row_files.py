"""The row files: appended to by the journal, read at a place or from their beginning.

A plain file is JSON lines. A compressed one is a sequence of zstd frames, one or a few for each
commit, which hold whole rows. A row that is superseded stays until its file is compacted
(`compaction`), so readers skip rows that the journal does not name.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gymmesh_client.disk import Disk
from gymmesh_client.log import RunState
from gymmesh_client.log_records import FAILURES, ROWS, SUPERSEDED, Place, RowFile
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.problems import UserError
from gymmesh_client.row_files.zstd import FRAME_START, Zstd

_FRAME_BYTES: Final = 1 << 24


class RowFiles:
    """The row files of one run, open for appending from where its journal says that they end."""

    def __init__(self, files: OutputFiles, disk: Disk, state: RunState) -> None:
        self.files = files
        self.ends = dict(state.ends)  # as far as rows were written
        self._disk = disk
        self._shard = max(state.rows_in, default=0)
        self._in_shard = state.rows_in.get(self._shard, 0)
        self._fds: dict[RowFile, int] = {}
        # Of the files that were written to since `settle`: where they ended.
        self._before: dict[RowFile, int] = {}
        self._new_entry = False
        self._zstd = Zstd() if files.compressed else None

    def append(self, kind: int, lines: Sequence[bytes]) -> list[Place]:
        """Append rows to the files of a kind, each a line with its newline; not yet on disk. When
        it fails (OSError), `undo` takes back all that was written since the last `settle`.
        """
        most = self.files.shard_rows
        if kind != ROWS or most is None:
            return self._append((kind, 0), lines) if lines else []
        places: list[Place] = []
        while len(places) < len(lines):
            if self._in_shard >= most:
                self._shard, self._in_shard = self._shard + 1, 0
            some = lines[len(places) :][: most - self._in_shard]
            self._in_shard += len(some)
            places += self._append((ROWS, self._shard), some)
        return places

    def sync(self) -> None:
        """Put on disk what was written. Raises OSError."""
        for file in self._before:
            self._disk.sync(self._fds[file])
        if self._new_entry:
            self._disk.sync_folder(self.files.rows.parent)
            self._new_entry = False

    def settle(self) -> None:
        """The journal names what was written; it is not taken back any more."""
        self._before.clear()
        for file in [one for one in self._fds if one[0] == ROWS and one[1] != self._shard]:
            self.release(file)

    def undo(self) -> None:
        """Take back what was written since the last `settle`, as far as the disk lets us."""
        for file, end in self._before.items():
            self.ends[file] = end
            with contextlib.suppress(OSError):
                self._disk.cut(self._fds[file], end)
        self._before.clear()

    def repair(self) -> None:
        """Cut off what the journal does not name. Raises OSError, and UserError where a file is
        shorter than it must be.
        """
        last = max((shard for kind, shard in self.ends if kind == ROWS), default=0)
        for number in self.files.shard_numbers():
            if number > last:
                self.files.shard(number).unlink()
        for file in {*self.ends, (ROWS, last), (FAILURES, 0), (SUPERSEDED, 0)}:
            path, end = self.files.row_file(*file), self.ends.get(file, 0)
            size = path.stat().st_size if path.exists() else -1
            if max(size, 0) < end:
                is_now = "is missing" if size < 0 else f"has {size} bytes"
                raise UserError(
                    f"{path} {is_now}, but the run's journal expects {end} bytes. Restore the "
                    "file, or start again with --overwrite"
                )
            if size > end:
                self._disk.cut(self._fd(file), end)
                self._disk.sync(self._fd(file))

    def create(self) -> None:
        """Make the first file of rows, so that there is one however the run goes. OSError."""
        self._fd((ROWS, self._shard))
        self._disk.sync_folder(self.files.rows.parent)

    def release(self, file: RowFile) -> None:
        """Close a file until it is needed again."""
        if file in self._fds:
            os.close(self._fds.pop(file))

    def close(self) -> None:
        """Close the files."""
        for file in list(self._fds):
            self.release(file)

    def _append(self, file: RowFile, lines: Sequence[bytes]) -> list[Place]:
        packed = self._zstd if file[0] == ROWS else None
        if packed is None:
            return self._append_data(file, lines, None)
        places: list[Place] = []
        for some in _in_frames(lines):
            places += self._append_data(file, some, packed)
        return places

    def _append_data(
        self, file: RowFile, lines: Sequence[bytes], packed: Zstd | None
    ) -> list[Place]:
        kind, shard = file
        data, offset = b"".join(lines), self.ends.get(file, 0)
        out = packed.compress(data) if packed else data
        fd = self._fd(file)
        self._before.setdefault(file, offset)
        self._disk.write(fd, out, offset)
        self.ends[file] = offset + len(out)
        places, inner = [], 0
        for line in lines:
            size, crc = len(line), zlib.crc32(line)
            if packed:
                places.append(Place(kind, shard, offset, inner, size, len(out), crc))
            else:
                places.append(Place(kind, shard, offset + inner, 0, size, size, crc))
            inner += size
        return places

    def _fd(self, file: RowFile) -> int:
        fd = self._fds.get(file)
        if fd is None:
            path = self.files.row_file(*file)
            self._new_entry = self._new_entry or not path.exists()
            fd = self._fds[file] = self._disk.open(path)
        return fd


def _in_frames(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Rows for one frame each: a reader expands a whole frame for one row."""
    start = size = 0
    for at, line in enumerate(lines):
        if size and size + len(line) > _FRAME_BYTES:
            yield lines[start:at]
            start, size = at, 0
        size += len(line)
    yield lines[start:]


class DamagedRow(UserError):
    """A row that is not what was written at its place."""


class RowReader:
    """Reads rows at their places; the latest compressed frame is kept.

    Args:
        compacted: the number of the latest compaction of each file (see `open_row_file`).
    """

    def __init__(self, files: OutputFiles, compacted: Mapping[RowFile, int]) -> None:
        self._files = files
        self._compacted = compacted
        self._fds: dict[RowFile, int] = {}
        self._frame: tuple[RowFile, int] | None = None
        self._content = b""
        self._zstd: Zstd | None = None

    def read(self, place: Place) -> bytes:
        """The row at a place, with its newline.

        Raises:
            DamagedRow: it is not what was written there.
            OSError: the file cannot be read.
        """
        row = self.read_unchecked(place)
        if len(row) != place.length or zlib.crc32(row) != place.crc:
            path = self._files.row_file(*place.file)
            raise DamagedRow(
                f"{path}: the row at byte {place.offset} was changed after it was written"
            )
        return row

    def read_unchecked(self, place: Place) -> bytes:
        """As `read`, but returns the current bytes without a check."""
        if self._frame == (place.file, place.offset):
            return self._content[place.inner : place.inner + place.length]
        data = os.pread(self._fd(place.file), place.extent, place.offset)
        if place.extent == place.length and not data.startswith(FRAME_START):
            return data
        self._zstd = self._zstd or Zstd()
        try:
            self._content = self._zstd.decompress(data)
        except ValueError:
            self._content = b""
        self._frame = (place.file, place.offset)
        return self._content[place.inner : place.inner + place.length]

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _fd(self, file: RowFile) -> int:
        if file not in self._fds:
            self._fds[file] = open_row_file(self._files, file, self._compacted)
        return self._fds[file]


def open_row_file(files: OutputFiles, file: RowFile, compacted: Mapping[RowFile, int]) -> int:
    """Open a row file for reading, as the journal knows it. Raises OSError.

    After a kill, one whose latest compaction has this number may not have taken its place yet.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC
    if file in compacted:
        with contextlib.suppress(FileNotFoundError):
            return os.open(files.compaction_draft(*file, compacted[file]), flags)
    return os.open(files.row_file(*file), flags)
