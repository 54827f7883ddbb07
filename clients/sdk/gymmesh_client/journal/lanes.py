"""The files of rows: appended to, read at a place, and superseded rows blanked out of them.

A blanked row becomes spaces, its newline too, so that the row behind it begins with spaces,
which JSON allows: offsets stay true, and the file never holds two rows of one rollout. Spaces
at a file's end are cut off.

A compressed file is a sequence of zstd frames, each followed by a skippable frame, which
decompressors ignore. It leaves room for a frame that is written anew without some of its rows.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gymmesh_client.journal.disk import Disk
from gymmesh_client.journal.layout import OutputFiles
from gymmesh_client.journal.records import (
    FAILURES,
    ROWS,
    SUPERSEDED,
    Place,
    PlaceNumbers,
    Rewritten,
)
from gymmesh_client.problems import UserError

_SKIPPABLE: Final = struct.Struct("<II")
_SKIP_MAGIC: Final = 0x184D2A50
_LEVEL: Final = 3
# Spaces amid rows that are much alike may compress worse than the row that stood there.
_ROOM: Final = 32
_ROOM_PER_ROW: Final = 16
_CHUNK: Final = 1 << 16
LANES: Final = (ROWS, FAILURES, SUPERSEDED)


class Lanes:
    """The files of rows of one run.

    Args:
        ends: bytes of each file that hold rows, by lane and shard.
        rows_in: rows ever put into each shard of rows.

    Attributes:
        ends: as given, and as far as rows were written since.
        added: rows written to each file since the last `settle`.
    """

    def __init__(
        self,
        files: OutputFiles,
        disk: Disk,
        ends: dict[tuple[int, int], int],
        rows_in: dict[int, int],
    ) -> None:
        self.files = files
        self.ends = dict(ends)
        self.added: dict[tuple[int, int], int] = {}
        self._disk = disk
        self._shard = max(rows_in, default=0)
        self._in_shard = rows_in.get(self._shard, 0)
        self._fds: dict[tuple[int, int], int] = {}
        self._touched: dict[tuple[int, int], int] = {}
        self._new_entry = False
        self._packer = Packer() if files.compressed else None

    def write(self, rows: Sequence[tuple[int, bytes]]) -> list[PlaceNumbers]:
        """Append rows (each a lane, and a line with its newline); they are not yet on disk.

        Raises:
            OSError: it failed; `undo` takes all back that was written since the last `settle`.
        """
        file = self._one_file(rows)
        if file is not None:
            return self._append(file, [line for _, line in rows])
        places: list[PlaceNumbers | None] = [None] * len(rows)
        batches: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (lane, _) in enumerate(rows):
            batches[lane, self._shard_for_next() if lane == ROWS else 0].append(number)
        for file, numbers in batches.items():
            lines = [rows[number][1] for number in numbers]
            for number, place in zip(numbers, self._append(file, lines), strict=True):
                places[number] = place
        return [place for place in places if place is not None]

    def sync(self) -> None:
        """Put on disk what was written. Raises OSError."""
        for file in self._touched:
            self._disk.sync(self._fds[file])
        if self._new_entry:
            self._disk.sync_folder(self.files.rows.parent)
            self._new_entry = False

    def settle(self) -> None:
        """The journal names what was written; it is not taken back any more."""
        self._touched.clear()
        self.added.clear()
        for file in [one for one in self._fds if one[0] == ROWS and one[1] != self._shard]:
            os.close(self._fds.pop(file))

    def undo(self) -> None:
        """Take back what was written since the last `settle`, as far as the disk lets us."""
        for file, end in self._touched.items():
            self.ends[file] = end
            with contextlib.suppress(OSError):
                self._disk.cut(self._fds[file], end)
        self._touched.clear()
        self.added.clear()

    def read(self, place: Place) -> bytes:
        """A row with its newline. Raises OSError, and UserError when it is damaged."""
        return read_row(self._fd((place.lane, place.shard)), place, self._path(place))

    def repair(self, to_erase: Iterable[Place] = ()) -> None:
        """Cut what no outcome was journalled for.

        A file of which the journal says nothing can only hold such rows. Where rows are being
        erased, any part of the file's end may be gone already.

        Raises:
            OSError: a file cannot be written.
            UserError: a file is shorter than it must be.
        """
        erasing = {(place.lane, place.shard) for place in to_erase}
        last = max((shard for lane, shard in self.ends if lane == ROWS), default=0)
        for number in self.files.shard_numbers():
            if number > last:
                self.files.shard(number).unlink()
        for file in {*self.ends, (ROWS, last), (FAILURES, 0), (SUPERSEDED, 0)}:
            path, end = self.files.lane(*file), self.ends.get(file, 0)
            size = path.stat().st_size if path.exists() else -1
            if max(size, 0) < end and file not in erasing:
                raise UserError(_shorter(path, size, end))
            if size > end:
                self._disk.cut(self._fd(file), end)
                self._disk.sync(self._fd(file))

    def create(self) -> None:
        """Make the first file of rows, so that there is one however the run goes. OSError."""
        self._fd((ROWS, self._shard))
        self._disk.sync_folder(self.files.rows.parent)

    def rewrites(self, places: Iterable[Place]) -> list[Rewritten]:
        """The compressed frames of rows as they are to be without them; changes nothing.

        Raises:
            UserError: a frame does not fit into its place without a row.
            OSError: a file cannot be read.
        """
        return [
            self._without(rows)
            for (lane, _, _), rows in _by_frame(places).items()
            if self._packed(lane)
        ]

    def erase(
        self, places: Iterable[Place], rewrites: Iterable[Rewritten]
    ) -> list[tuple[int, int, int]]:
        """Blank rows out of their files, on disk; those that are blank already, too.

        Args:
            rewrites: the frames of those that are in compressed files.

        Returns:
            Lane, shard and size of each file concerned.

        Raises:
            OSError: it failed; it can be done again.
        """
        files: set[tuple[int, int]] = set()
        for place in places:
            if not self._packed(place.lane):
                files.add(file := (place.lane, place.shard))
                # One that lies behind the end was cut off when this was tried before.
                if place.offset < self._size(file):
                    self._disk.write(self._fd(file), b" " * place.length, place.offset)
        for one in rewrites:
            files.add(file := (one.lane, one.shard))
            if not one.data:
                self.ends[file] = min(self.ends[file], one.offset)
            elif one.offset < self._size(file):
                self._disk.write(self._fd(file), one.data, one.offset)
        sizes = []
        for file in sorted(files):
            end = self._trimmed(file)
            self._disk.cut(self._fd(file), end)
            self._disk.sync(self._fd(file))
            self.ends[file] = end
            sizes.append((*file, end))
        return sizes

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    # -- writing ------------------------------------------------------------------------------

    def _append(self, file: tuple[int, int], lines: list[bytes]) -> list[PlaceNumbers]:
        lane, shard = file
        data, offset = b"".join(lines), self.ends.get(file, 0)
        packed = self._packed(lane)
        out = self._packer.pack(data, len(lines)) if packed and self._packer else data
        fd = self._fd(file)
        self._touched.setdefault(file, offset)
        self._disk.write(fd, out, offset)
        self.ends[file] = offset + len(out)
        self.added[file] = self.added.get(file, 0) + len(lines)
        places: list[PlaceNumbers] = []
        inner, crc32 = 0, zlib.crc32
        for line in lines:
            size = len(line)
            at, within, extent = (offset, inner, len(out)) if packed else (offset + inner, 0, size)
            places.append((lane, shard, at, within, size, extent, crc32(line)))
            inner += size
        return places

    def _one_file(self, rows: Sequence[tuple[int, bytes]]) -> tuple[int, int] | None:
        """The file that all these rows go to, as nearly always; None: there are several."""
        lane = rows[0][0]
        for other, _ in rows:
            if other != lane:
                return None
        if lane != ROWS:
            return lane, 0
        most, count = self.files.shard_rows, len(rows)
        if most is not None and self._in_shard + count > most:
            return None
        self._in_shard += count
        return lane, self._shard

    def _shard_for_next(self) -> int:
        most = self.files.shard_rows
        if most is not None and self._in_shard >= most:
            self._shard, self._in_shard = self._shard + 1, 0
        self._in_shard += 1
        return self._shard

    def _packed(self, lane: int) -> bool:
        return lane == ROWS and self._packer is not None

    def _path(self, place: Place) -> str:
        return str(self.files.lane(place.lane, place.shard))

    def _fd(self, file: tuple[int, int]) -> int:
        fd = self._fds.get(file)
        if fd is None:
            path = self.files.lane(*file)
            self._new_entry = self._new_entry or not path.exists()
            fd = self._fds[file] = self._disk.open(path)
        return fd

    # -- erasing ------------------------------------------------------------------------------

    def _size(self, file: tuple[int, int]) -> int:
        return min(self.ends.get(file, 0), os.fstat(self._fd(file)).st_size)

    def _trimmed(self, file: tuple[int, int]) -> int:
        """The file's size without spaces at its end."""
        fd, end = self._fd(file), self._size(file)
        if self._packed(file[0]):
            return end
        while end > 0:
            begin = max(0, end - _CHUNK)
            kept = os.pread(fd, end - begin, begin).rstrip(b" ")
            if kept:
                return begin + len(kept)
            end = begin
        return 0

    def _without(self, rows: list[Place]) -> Rewritten:
        assert self._packer is not None
        lane, shard, offset, _, _, extent, _ = rows[0]
        path = self.files.lane(lane, shard)
        try:
            data = bytearray(self._packer.unpack(os.pread(self._fd((lane, shard)), extent, offset)))
        except ValueError as error:
            raise UserError(f"{path}: the rows at byte {offset} are damaged: {error}") from None
        for row in rows:
            data[row.inner : row.inner + row.length] = b" " * row.length
        if offset + extent >= self._size((lane, shard)):
            data = data.rstrip(b" ")  # nothing follows that they could be put before
            if not data:
                return Rewritten(lane, shard, offset, b"")
        frame = self._packer.pack_into(bytes(data), extent)
        if frame is None:
            raise UserError(
                f"{path}: a row cannot be taken out of its compressed file; "
                "retry these rollouts with another --output"
            )
        return Rewritten(lane, shard, offset, frame)


class Packer:
    """Compresses and decompresses frames of rows."""

    def __init__(self) -> None:
        self._zstd = load_zstandard()
        self._compress = self._zstd.ZstdCompressor(level=_LEVEL).compress
        self._decompressor = self._zstd.ZstdDecompressor()

    def pack(self, data: bytes, rows: int) -> bytes:
        """A frame of this many rows, and the room behind it."""
        frame: bytes = self._compress(data)
        return frame + _room(_ROOM + _ROOM_PER_ROW * rows)

    def pack_into(self, data: bytes, extent: int) -> bytes | None:
        """A frame and what fills the extent; None when there is no way to make it fit."""
        for level in (_LEVEL, 9, 19):
            frame: bytes = self._zstd.ZstdCompressor(level=level).compress(data)
            if len(frame) + _SKIPPABLE.size <= extent:
                return frame + _room(extent - len(frame))
        return None

    def unpack(self, frame: bytes) -> bytes:
        """What a frame holds. Raises ValueError when it is damaged."""
        try:
            data: bytes = self._decompressor.decompressobj().decompress(frame)
            return data
        except self._zstd.ZstdError as error:
            raise ValueError(str(error)) from None


def _room(size: int) -> bytes:
    """A skippable frame of this many bytes in all (RFC 8878, section 3.1.2)."""
    body = size - _SKIPPABLE.size
    return _SKIPPABLE.pack(_SKIP_MAGIC, body) + bytes(body)


def load_zstandard() -> Any:
    """The module; UserError where it is not installed."""
    try:
        import zstandard
    except ImportError:
        raise UserError(
            "compressed output needs the package zstandard; install it, or leave out --zstd"
        ) from None
    return zstandard


def read_row(fd: int, place: Place, path: str) -> bytes:
    """The row at a place, with its newline.

    Raises:
        UserError: it is not what was written there.
        OSError: the file cannot be read.
    """
    data = os.pread(fd, place.extent, place.offset)
    if place.extent != place.length or data[:4] == b"\x28\xb5\x2f\xfd":
        try:
            data = Packer().unpack(data)
        except ValueError:
            data = b""
    row = data[place.inner : place.inner + place.length]
    if zlib.crc32(row) != place.crc:
        raise UserError(f"{path}: the row at byte {place.offset} is damaged")
    return row


def _by_frame(places: Iterable[Place]) -> dict[tuple[int, int, int], list[Place]]:
    frames: dict[tuple[int, int, int], list[Place]] = defaultdict(list)
    for place in places:
        frames[place.lane, place.shard, place.offset].append(place)
    return frames


def _shorter(path: object, size: int, end: int) -> str:
    is_now = "is gone" if size < 0 else f"has {size} bytes"
    return (
        f"{path}: {is_now}, but its journal knows of {end}; put the file back as it was, or start "
        "anew with --overwrite"
    )
