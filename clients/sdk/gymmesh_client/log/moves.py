"""The places of rows after a compaction, from its record. Pure.

Used by all readers of the log that need places: `index`, and `Journal.current`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from gymmesh_client.log_records import SUPERSEDED, Compacted, Place


class Moves:
    """The places of one file's rows before a compaction, mapped to those after it."""

    def __init__(self, compacted: Compacted) -> None:
        self._file = (compacted.kind, compacted.shard)
        self._copies: dict[tuple[int, int], int] = {}  # of removed rows: where in SUPERSEDED
        self._removed: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._left: dict[int, int] = {}  # of rewritten frames: their new size
        self._saved = [0]  # bytes that the first N rewritten frames are shorter by
        at = compacted.kept_at
        for offset, inner, length, extent, left in compacted.removed:
            self._copies[offset, inner] = at
            at += length
            self._removed[offset].append((inner, length))
            if offset not in self._left:
                self._left[offset] = left
                self._saved.append(self._saved[-1] + extent - left)
        self._offsets = sorted(self._left)

    def of(self, place: Place) -> Place:
        """Where the row is now that was there; in another file it stays."""
        if place.file != self._file:
            return place
        copy = self._copies.get((place.offset, place.inner))
        if copy is not None:
            return Place(SUPERSEDED, 0, copy, 0, place.length, place.length, place.crc)
        offset, inner, extent = place.offset, place.inner, place.extent
        if offset in self._left:
            inner -= sum(length for at, length in self._removed[offset] if at < inner)
            extent = self._left[offset]
        offset -= self._saved[bisect_left(self._offsets, offset)]
        return place._replace(offset=offset, inner=inner, extent=extent)
