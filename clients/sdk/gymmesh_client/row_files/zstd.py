"""zstd frames of rows and events: compressing them, and expanding them within a limit.

A file of rows may come from somebody else. zstd expands a byte to as much as 32 KiB, so a frame is
expanded in slices, and no further than `MOST_IN_FRAME`. The size that a frame declares does not
help: zstd compares it at the frame's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gymmesh_client.problems import UserError

MOST_IN_FRAME: Final = 1 << 29
"""Bytes that a frame may hold: twice the events that an attempt may have by default."""
FRAME_START: Final = b"\x28\xb5\x2f\xfd"
"""How a compressed frame begins, and no JSON does."""
_LEVEL: Final = 3
# A block of at most 128 KiB takes at least four bytes.
_MOST_FROM_BYTE: Final = 1 << 15
_LEAST_SLICE: Final = 256


class Zstd:
    """Compresses and decompresses whole frames. Raises UserError where zstandard is missing."""

    def __init__(self) -> None:
        self._zstandard = load_zstandard()
        self.compress: Callable[[bytes], bytes]
        self.compress = self._zstandard.ZstdCompressor(level=_LEVEL).compress

    def decompress(self, frame: bytes, most: int = MOST_IN_FRAME) -> bytes:
        """What a frame holds. Raises ValueError when it is damaged, cut short, or larger than
        `most` bytes.
        """
        expanding = FrameInParts(self._zstandard, most)
        expanding.feed(frame)
        if not expanding.whole:
            raise ValueError("the compressed frame is truncated")
        return expanding.content()


class FrameInParts:
    """One frame whose bytes arrive in parts.

    Attributes:
        size: bytes of the frame so far.
    """

    def __init__(self, zstandard: Any, most: int = MOST_IN_FRAME) -> None:
        self.size = 0
        self._error = zstandard.ZstdError
        self._object = zstandard.ZstdDecompressor().decompressobj()
        self._most = most
        self._parts: list[bytes] = []
        self._held = 0

    @property
    def whole(self) -> bool:
        """Whether the frame's end was seen."""
        return bool(self._object.eof)

    def feed(self, data: bytes) -> bytes:
        """Expand the frame's next bytes and return those behind its end. Raises ValueError when
        the frame is damaged or holds too much.
        """
        at = 0
        while at < len(data) and not self.whole:
            step = max(_LEAST_SLICE, (self._most - self._held) // _MOST_FROM_BYTE)
            slice_ = data[at : at + step]
            try:
                part = self._object.decompress(slice_)
            except self._error as error:
                raise ValueError(f"the compressed frame is damaged: {error}") from None
            self._held += len(part)
            if self._held > self._most:
                self._parts.clear()
                raise ValueError(
                    f"the decompressed frame exceeds {self._most >> 20} MiB. If you trust the "
                    "file, decompress the file with `zstd -d`"
                )
            self._parts.append(part)
            used = len(slice_) - len(self._object.unused_data)
            self.size += used
            at += used
        return data[at:]

    def content(self) -> bytes:
        """What was expanded so far."""
        return b"".join(self._parts)


def load_zstandard() -> Any:
    """The module; UserError where it is not installed."""
    try:
        import zstandard
    except ImportError:
        raise UserError(
            "compressed output needs the zstandard package. Install the package, or remove --zstd"
        ) from None
    return zstandard
