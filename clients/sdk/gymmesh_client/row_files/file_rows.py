"""Rows of a file, each with the place where it stands, from any place on.

A plain file is JSON lines. A compressed one is a sequence of zstd frames, as a run's are; see
docs/reference/journal.md.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gymmesh_client.log_records import Place
from gymmesh_client.problems import UserError, unreadable
from gymmesh_client.row_files.row_files import DamagedRow
from gymmesh_client.row_files.zstd import FrameInParts, Zstd, load_zstandard

_CHUNK: Final = 1 << 18


class Placed(NamedTuple):
    """A row and its place.

    Attributes:
        line: the row without its newline.
        offset: the file's bytes before the row, or before the frame that holds it.
        inner: bytes of the frame's content before the row; 0 in a plain file.
        length: bytes of the row.
        extent: bytes of the file from `offset` to the end of the row or frame.
        end: the file's bytes up to the next row's offset.
    """

    line: bytes
    offset: int
    inner: int
    length: int
    extent: int
    end: int


class RowPlace(NamedTuple):
    """Where the row of a rollout is.

    Attributes:
        source: the number of the index's source.
        place: as the journal has it; of a file without one with 0 for `crc`.
        verified: whether there is a journal that has it.
    """

    path: Path
    source: int
    place: Place
    verified: bool
    rollout_id: str


def placed_rows(path: Path, fd: int, start: int, end: int, *, compressed: bool) -> Iterator[Placed]:
    """The rows of a file from `start`, where a row or frame begins, to `end`. Raises UserError
    where a compressed frame is damaged or too large to be read at once.
    """
    yield from _frames(path, fd, start, end) if compressed else _lines(fd, start, end)


def read_line(at: RowPlace) -> bytes:
    """The row at a place. Raises DamagedRow where it is not what was written there, and UserError
    where the file cannot be read, or is another one now.
    """
    path, place = at.path, at.place
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), place.extent, place.offset)
    except OSError as error:
        raise unreadable(path, error) from None
    if path.name.endswith(".zst"):
        try:
            data = Zstd().decompress(data)[place.inner : place.inner + place.length]
        except ValueError as error:
            if at.verified:
                data = b""  # no row of it is what was written
            else:
                raise UserError(f"{path}: byte {place.offset}: {error}") from None
    if at.verified and (len(data) != place.length or zlib.crc32(data) != place.crc):
        raise DamagedRow(f"{path}: the row at byte {place.offset} was changed")
    if len(data) != place.length:
        raise UserError(f"{path} was truncated. Reload the page to read the file again")
    return data.rstrip(b"\n") if at.verified else data


def _lines(fd: int, start: int, end: int) -> Iterator[Placed]:
    offset, rest = start, b""
    at = start
    while at < end:
        data = os.pread(fd, min(_CHUNK, end - at), at)
        if not data:
            break
        at += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            size = len(line)
            if line.strip():
                yield Placed(line, offset, 0, size, size, offset + size + 1)
            offset += size + 1
    if rest.strip():  # a last line that has no newline
        yield Placed(rest, offset, 0, len(rest), len(rest), offset + len(rest))


def _frames(path: Path, fd: int, start: int, end: int) -> Iterator[Placed]:
    zstandard = load_zstandard()
    offset, data, at = start, b"", start
    while offset < end:
        frame = FrameInParts(zstandard)
        while not frame.whole:
            if not data:
                data = os.pread(fd, min(_CHUNK, end - at), at)
                at += len(data)
                if not data:
                    return  # a frame that is not whole yet
            try:
                data = frame.feed(data)
            except ValueError as error:
                raise UserError(f"{path}: byte {offset}: {error}") from None
        yield from _in_frame(frame.content(), offset, frame.size)
        offset += frame.size


def _in_frame(content: bytes, offset: int, extent: int) -> Iterator[Placed]:
    inner = 0
    for line in content.split(b"\n"):
        if line.strip():
            yield Placed(line, offset, inner, len(line), extent, offset + extent)
        inner += len(line) + 1
