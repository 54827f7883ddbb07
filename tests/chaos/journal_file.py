"""A reader of journals written from docs/reference/journal.md alone: nothing of the product is
used. Pure.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

HEADER: Final = b"\x89gymmesh journal\n\x01\n"
_FRAME: Final = struct.Struct("<4sQQII")
_PLACE: Final = struct.Struct("<B3xIQIIII")
ROWS, FAILURES = 0, 1


@dataclass(frozen=True)
class Place:
    """Where a row is."""

    lane: int
    shard: int
    offset: int
    inner: int
    length: int
    extent: int
    crc: int


@dataclass(frozen=True)
class Outcome:
    """A rollout's outcome: status 1 completed, 2 failed."""

    attempt: int
    status: int
    boundary: int
    place: Place


@dataclass
class Story:
    """All that a journal says.

    Attributes:
        current: outcomes by key.
        failed: attempts that failed and were tried again, (key, attempt).
        faults: what no journal may say.
        sizes: by (lane, shard), how much of the file is named.
    """

    sessions: list[dict[str, Any]] = field(default_factory=list)
    current: dict[bytes, Outcome] = field(default_factory=dict)
    failed: set[tuple[bytes, int]] = field(default_factory=set)
    reserved: set[tuple[bytes, int]] = field(default_factory=set)
    superseded: int = 0
    faults: list[str] = field(default_factory=list)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    ended: bool = False

    def says(self, key: bytes, attempt: int) -> bool:
        """Whether it knows how an attempt ended."""
        one = self.current.get(key)
        return (key, attempt) in self.failed or (one is not None and one.attempt == attempt)


def read_story(data: bytes) -> Story:
    """What a journal says up to its torn tail, if it has one."""
    story = Story()
    if not data.startswith(HEADER):
        if data:
            story.faults.append("the journal does not begin with its header")
        return story
    for payload in _payloads(data):
        place = 0
        while place < len(payload):
            kind, size = struct.unpack_from("<BI", payload, place)
            body = payload[place + 5 : place + 5 + size]
            place += 5 + size
            _take(story, kind, body)
    return story


def _payloads(data: bytes) -> Iterator[bytes]:
    place, due = len(HEADER), 0
    while place + _FRAME.size <= len(data):
        magic, sequence, _, size, crc = _FRAME.unpack_from(data, place)
        begin = place + _FRAME.size
        payload = data[begin : begin + size]
        if magic != b"\xf7GMC" or sequence != due or len(payload) < size:
            return
        if zlib.crc32(payload, zlib.crc32(data[place : place + 24])) != crc:
            return
        yield payload
        place, due = begin + size, due + 1


def _take(story: Story, kind: int, body: bytes) -> None:
    story.ended = kind == 7
    if kind == 1:
        story.sessions.append(json.loads(body))
    elif kind in (2, 8):
        for start in range(0, len(body), 20):
            _reserve(story, *struct.unpack_from("<16sI", body, start), released=kind == 8)
    elif kind == 3:
        key, attempt = struct.unpack_from("<16sI", body)
        _end_attempt(story, key, attempt)
        story.failed.add((key, attempt))
    elif kind == 4:
        key, attempt, status, boundary = struct.unpack_from("<16sIBB", body)
        place = Place(*_PLACE.unpack_from(body, 24))
        _end_attempt(story, key, attempt)
        if key in story.current:
            story.faults.append(f"rollout {key.hex()} has a second outcome")
        story.current[key] = Outcome(attempt, status, boundary, place)
        lane = (place.lane, place.shard)
        story.sizes[lane] = max(story.sizes.get(lane, 0), place.offset + place.extent)
    elif kind in (5, 10):
        key, _ = struct.unpack_from("<16sI", body)
        story.superseded += 1
        if story.current.pop(key, None) is None:
            story.faults.append(
                f"the journal removes an outcome of the rollout {key.hex()}, which has none"
            )


def _reserve(story: Story, key: bytes, attempt: int, *, released: bool) -> None:
    if released:
        story.reserved.discard((key, attempt))
    elif (key, attempt) in story.reserved:
        story.faults.append(f"attempt {attempt} of rollout {key.hex()} was reserved twice")
    else:
        story.reserved.add((key, attempt))


def _end_attempt(story: Story, key: bytes, attempt: int) -> None:
    if (key, attempt) not in story.reserved:
        story.faults.append(
            f"attempt {attempt} of rollout {key.hex()} ended, but was never reserved"
        )
    if story.says(key, attempt):
        story.faults.append(f"attempt {attempt} of rollout {key.hex()} ended twice")
