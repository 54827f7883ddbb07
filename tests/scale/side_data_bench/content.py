"""Numbers that are cheap to make, differ in every row, and can be made again to compare. Pure."""

from __future__ import annotations

import hashlib
import random
from functools import cache
from typing import Final

_ROWS: Final = 64
_STAMP: Final = 16


def rows_of(seed: str, first: int, count: int, row_bytes: int) -> bytearray:
    """The rows of the tokens [first, first + count) of a rollout. seed: names the rollout."""
    block = _block(row_bytes)
    skipped = first % _ROWS
    repeats = (skipped + count) // _ROWS + 1
    data = bytearray(block * repeats)[skipped * row_bytes : (skipped + count) * row_bytes]
    base = hashlib.sha256(seed.encode())
    for place in range(count):
        stamp = base.copy()
        stamp.update(b"%d" % (first + place))
        at = place * row_bytes
        data[at : at + _STAMP] = stamp.digest()[:_STAMP]
    return data


@cache
def _block(row_bytes: int) -> bytes:
    return random.Random(7).randbytes(_ROWS * row_bytes)
