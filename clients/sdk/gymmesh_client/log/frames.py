"""Commits, one frame each: what makes a torn tail tell from damage. Pure.

A journal is its header and then frames. The collector writes a frame only when the one before
it is on disk, so what a kill or a power cut leaves half-written is the last frame and nothing
else. A bad frame with a good later one behind it is therefore damage, and refused; without
one it is a torn tail, whose outcomes were never acknowledged, and cut off.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = b"\x89gymmesh journal\n\x01\n"
"""Names the file and the format (the byte before the last); never valid as text or JSON."""

_MAGIC: Final = b"\xf7GMC"
_HEAD: Final = struct.Struct("<4sQQI")
_CRC: Final = struct.Struct("<I")
FRAME_BYTES: Final = _HEAD.size + _CRC.size


class LogFrame(NamedTuple):
    """A commit."""

    sequence: int  # 0, 1, 2 … without a gap
    time_unix_nano: int  # when it was made
    payload: bytes  # its records
    end: int  # bytes from the journal's start to behind it


class Damage(ValueError):
    """A journal that is damaged elsewhere than at its end; the text says where."""


def encode_frame(sequence: int, time_unix_nano: int, payload: bytes) -> bytes:
    """A commit's bytes."""
    head = _HEAD.pack(_MAGIC, sequence, time_unix_nano, len(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(payload, zlib.crc32(head))), payload))


def scan(
    data: bytes | mmap.mmap, start: int = len(HEADER), sequence: int = 0
) -> Iterator[LogFrame]:
    """The whole commits of a journal from the one at `start`, whose number is `sequence`; stops
    before a torn tail. Raises Damage where a frame is bad and a later one is whole.
    """
    place = start
    while place < len(data):
        frame = _frame(data, place)
        if frame is None or frame.sequence != sequence:
            _refuse_if_followed(data, place, sequence)
            return
        yield frame
        place, sequence = frame.end, sequence + 1


def _frame(data: bytes | mmap.mmap, place: int) -> LogFrame | None:
    if place + FRAME_BYTES > len(data):
        return None
    magic, sequence, time_unix_nano, size = _HEAD.unpack_from(data, place)
    begin = place + FRAME_BYTES
    if magic != _MAGIC or begin + size > len(data):
        return None
    payload = data[begin : begin + size]
    crc = zlib.crc32(payload, zlib.crc32(data[place : place + _HEAD.size]))
    if crc != _CRC.unpack_from(data, place + _HEAD.size)[0]:
        return None
    return LogFrame(sequence, time_unix_nano, payload, begin + size)


def _refuse_if_followed(data: bytes | mmap.mmap, place: int, sequence: int) -> None:
    """Raise Damage when a commit later than `sequence` is whole at `place` or behind it."""
    found = data.find(_MAGIC, place)
    while found >= 0:
        frame = _frame(data, found)
        if frame is not None and frame.sequence > sequence:
            raise Damage(f"commit {sequence}, at byte {place}, is damaged")
        found = data.find(_MAGIC, found + 1)
