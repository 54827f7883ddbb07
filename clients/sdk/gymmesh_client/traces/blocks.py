"""A trace's bytes: blocks of compressed events, each behind a table of what is in it. Pure.

A block is a skippable zstd frame with the table and then a zstd frame with the events, each a
`gymmesh.rollout.v1.RolloutEvent` behind its length as a varint. So a decompressor that knows
nothing of this makes one length-delimited stream of the whole file.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout_ids import KEY_BYTES

_MAGIC: Final = 0x184D2A51
_HEAD: Final = struct.Struct("<II")
# Of the table: the CRC-32 of what follows in it, and the bytes of the frame behind it.
_TABLE: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct(f"<{KEY_BYTES}sIII")


class Piece(NamedTuple):
    """An attempt's events in a block."""

    key: bytes
    attempt: int
    offset: int  # bytes from the start of what the block's frame holds
    length: int  # bytes of the events there, with their lengths


class Block(NamedTuple):
    """A block's place."""

    table: bytes  # its entries, packed
    start: int  # bytes from the file's start to the frame of events
    end: int  # bytes from the file's start to behind it

    def pieces(self) -> Iterator[Piece]:
        """What is in the block."""
        return map(Piece._make, _ENTRY.iter_unpack(self.table))


def encode_events(events: Iterable[pb.RolloutEvent]) -> bytes:
    """Events, each behind its length."""
    parts = []
    for event in events:
        data = event.SerializeToString()
        parts.append(_varint(len(data)))
        parts.append(data)
    return b"".join(parts)


def decode_events(data: bytes) -> Iterator[pb.RolloutEvent]:
    """The events of an attempt. Raises ValueError when they are damaged."""
    place = 0
    while place < len(data):
        size, place = _read_varint(data, place)
        if place + size > len(data):
            raise ValueError("an event is truncated")
        yield pb.RolloutEvent.FromString(data[place : place + size])
        place += size


def encode_block(pieces: Iterable[Piece], frame: bytes) -> bytes:
    """A block's bytes."""
    table = b"".join(_ENTRY.pack(*piece) for piece in pieces)
    head = _HEAD.pack(_MAGIC, _TABLE.size + len(table))
    size = struct.pack("<I", len(frame))
    return b"".join((head, struct.pack("<I", zlib.crc32(size + table)), size, table, frame))


def scan_blocks(data: bytes | mmap.mmap, place: int = 0) -> Iterator[Block]:
    """The whole blocks of a file, in order; stops before a torn tail."""
    while (block := _block(data, place)) is not None:
        yield block
        place = block.end


def _block(data: bytes | mmap.mmap, place: int) -> Block | None:
    begin = place + _HEAD.size + _TABLE.size
    if begin > len(data):
        return None
    magic, size = _HEAD.unpack_from(data, place)
    crc, frame = _TABLE.unpack_from(data, place + _HEAD.size)
    start = place + _HEAD.size + size
    if magic != _MAGIC or size < _TABLE.size or start + frame > len(data):
        return None
    if zlib.crc32(data[begin - 4 : start]) != crc:
        return None
    return Block(data[begin:start], start, start + frame)


@lru_cache(4096)  # the lengths of events, most of which are alike
def _varint(value: int) -> bytes:
    """An unsigned integer as protobuf writes it: seven bits a byte, the lowest first."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError("an event's length is truncated or too large")
