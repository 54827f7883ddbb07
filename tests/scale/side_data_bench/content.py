"""Numbers that are cheap to make, differ in every row, and can be made again to compare. Pure."""

from __future__ import annotations

import hashlib
import random
from functools import cache
from typing import Any, Final

import numpy

_ROWS: Final = 64


def rows_of(seed: str, first: int, count: int, row_bytes: int) -> memoryview:
    """The rows of the tokens [first, first + count) of a rollout. seed: names the rollout."""
    made = numpy.empty((count, row_bytes), "uint8")
    for begin in range(0, count, _ROWS):
        part = made[begin : begin + _ROWS]
        part[:] = _some(seed, first + begin, len(part), row_bytes)
    return made.data.cast("B")


def are_rows_of(data: bytes | bytearray, seed: str, row_bytes: int) -> bool:
    """Whether they are those from the first token on."""
    found = numpy.frombuffer(data, "uint8").reshape(-1, row_bytes)
    parts = (found[begin : begin + _ROWS] for begin in range(0, len(found), _ROWS))
    return all(
        numpy.array_equal(part, _some(seed, place * _ROWS, len(part), row_bytes))
        for place, part in enumerate(parts)
    )


def _some(seed: str, first: int, count: int, row_bytes: int) -> Any:
    """At most 64 rows: random ones, each with the rollout and the token's place in front."""
    tokens = numpy.arange(first, first + count)
    rows = _block(row_bytes)[tokens % _ROWS]
    stamps = rows[:, :16].view("<u8")
    stamps[:, 0] = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
    stamps[:, 1] = tokens
    return rows


@cache
def _block(row_bytes: int) -> Any:
    found = numpy.frombuffer(random.Random(7).randbytes(_ROWS * row_bytes), "uint8")
    return found.reshape(_ROWS, row_bytes)
