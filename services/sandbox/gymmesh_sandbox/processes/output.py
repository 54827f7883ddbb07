"""What a process wrote to one stream: its beginning is kept, the rest is counted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

#: The largest piece that is sent at once, in bytes.
PIECE_BYTES: Final = 1 << 20


class KeptOutput:
    """One stream of one process.

    Args:
        limit: the maximum bytes that are kept.
        reserve: requests room for a number of bytes; returns for how many there is room.
    """

    def __init__(self, limit: int, reserve: Callable[[int], int]) -> None:
        self._limit = limit
        self._reserve = reserve
        self._kept = bytearray()
        #: Bytes that were written, with those that were dropped.
        self.written = 0

    @property
    def kept(self) -> int:
        """Bytes that are kept."""
        return len(self._kept)

    @property
    def dropped(self) -> int:
        """How many bytes were dropped, all after the kept ones."""
        return self.written - len(self._kept)

    def add(self, piece: bytes) -> int:
        """Adds output; returns how many bytes of it were dropped."""
        room = 0 if self.dropped else min(len(piece), self._limit - len(self._kept))
        room = self._reserve(room) if room else 0
        self.written += len(piece)
        if room:
            self._kept += memoryview(piece)[:room]
        return len(piece) - room

    def pieces(self, offset: int) -> Iterator[bytes]:
        """The kept output from an offset on, in pieces that can be sent."""
        for start in range(offset, len(self._kept), PIECE_BYTES):
            yield bytes(memoryview(self._kept)[start : start + PIECE_BYTES])
