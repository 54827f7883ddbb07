"""Rollouts by 16 bytes each, and a compact table of them. Pure."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 16
_ENTRY: Final = KEY_BYTES + 4
_BUCKETS: Final = 1 << 14
# A rollout in flight is asked for its key again and again, and that takes a digest.
_KNOWN: Final = 1 << 13
_VALUE: Final = struct.Struct("<I")
_ZERO: Final = bytes(_VALUE.size)

Slot = tuple[bytearray, int]
"""Where a key's number stands in a `KeyTable`: its bucket, and the place in it."""
# Called with a slot's bucket and place.
read_slot: Final = _VALUE.unpack_from
write_slot: Final = _VALUE.pack_into


def rollout_id(run_id: str, task_id: str, repeat_index: int) -> str:
    """The id that stands for (run, task, repeat): the same for every attempt."""
    return next(rollout_ids(run_id, task_id, (repeat_index,)))


def rollout_ids(run_id: str, task_id: str, repeats: Iterable[int]) -> Iterator[str]:
    """`rollout_id` of several repeats of a task."""
    begin = f"{run_id}\0{task_id}\0"
    for repeat in repeats:
        number = str(repeat)
        digest = hashlib.blake2b((begin + number).encode(), digest_size=10).hexdigest()
        # The repeat stands at the end, where a replayed model looks for it.
        yield f"ro-{digest}-{number}"


@lru_cache(maxsize=_KNOWN)
def rollout_key(rollout: str) -> bytes:
    """16 bytes that stand for a rollout's id."""
    return hashlib.blake2b(rollout.encode(), digest_size=KEY_BYTES).digest()


class KeyTable:
    """A number of 32 bits for each key, in about 25 bytes per key; keys never go.

    A dict would take 150. Keys are spread over small buckets, each of which is one byte string that
    is searched as a whole.

    Args:
        buckets: how many; a power of two.
    """

    def __init__(self, buckets: int = _BUCKETS) -> None:
        self._buckets: list[bytearray | None] = [None] * buckets
        # What is left of a key's hash, which the key keeps, is its bucket's number; to read that
        # from its bytes is dearer.
        self._mask = buckets - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> int:
        """The key's number; 0 when it has none."""
        bucket = self._buckets[hash(key) & self._mask]
        if bucket is None:
            return 0
        place = bucket.find(key)
        if place % _ENTRY:
            place = _find(bucket, key, place)
            if place < 0:
                return 0
        number: int = read_slot(bucket, place + KEY_BYTES)[0]
        return number

    def values(self, keys: Iterable[bytes]) -> list[int]:
        """The keys' numbers, as `get` says; it is dear to call for each."""
        buckets, mask, values = self._buckets, self._mask, []
        for key in keys:
            value = 0
            bucket = buckets[hash(key) & mask]
            if bucket is not None:
                place = bucket.find(key)
                if place % _ENTRY:
                    place = _find(bucket, key, place)
                if place >= 0:
                    value = read_slot(bucket, place + KEY_BYTES)[0]
            values.append(value)
        return values

    def set(self, key: bytes, value: int) -> None:
        """Set a key's number, from 0 to 2**32 - 1."""
        for slot in self.slots((key,)):
            write_slot(*slot, value)

    def slots(self, keys: Iterable[bytes]) -> list[Slot]:
        """Where the keys' numbers stand, for good; of a new key it is 0."""
        buckets, mask, slots = self._buckets, self._mask, []
        for key in keys:
            number = hash(key) & mask
            bucket = buckets[number]
            if bucket is None:
                bucket, place = bytearray(), -1
                buckets[number] = bucket
            else:
                place = bucket.find(key)
                if place % _ENTRY:
                    place = _find(bucket, key, place)
            if place < 0:
                place = len(bucket)
                bucket += key + _ZERO
                self._count += 1
            slots.append((bucket, place + KEY_BYTES))
        return slots


def _find(bucket: bytearray, key: bytes, place: int) -> int:
    """Where the key's entry is, -1 for nowhere; `place` is where its bytes were found, if at all.

    A match across two entries is as likely as a collision of digests, but costs nothing to tell
    apart.
    """
    while place >= 0 and place % _ENTRY:
        place = bucket.find(key, place + 1)
    return place
