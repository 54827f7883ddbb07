"""Reading files of rows from their beginning to where the journal says they end."""

from __future__ import annotations

import io
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from gymmesh_client.journal.lanes import load_zstandard

_CHUNK: Final = 1 << 17


def read_lines(
    path: Path, end: int, *, compressed: bool, without: Collection[tuple[int, int]] = ()
) -> Iterator[bytes]:
    """The rows of a file, without their newlines and without the spaces of blanked ones.

    Args:
        end: bytes of the file that count.
        without: (length, CRC-32) of superseded rows that still stand there.

    Raises:
        OSError: it cannot be read.
    """
    if not end:
        return
    with path.open("rb") as file:
        source: BinaryIO = io.BufferedReader(_Limited(file, end), _CHUNK)
        if compressed:
            decompressor = load_zstandard().ZstdDecompressor()
            unpacked = decompressor.stream_reader(source, read_across_frames=True)
            source = io.BufferedReader(unpacked, _CHUNK)
        for raw in source:
            line = raw.lstrip(b" ")
            if without and (len(line), zlib.crc32(line)) in without:
                continue
            row = line.strip()
            if row:
                yield row


class _Limited(io.RawIOBase):
    """The beginning of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__()
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # narrower than any buffer
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)
