"""Token ids and log probabilities as the contract carries them: little-endian int32 and float32."""

from __future__ import annotations

import sys
from array import array
from typing import Any, Final

TOKEN_BYTES: Final = 4
"""Bytes of one token id, and of one log probability."""


def unpack_ids(ids: bytes) -> list[int]:
    """Token ids as a list, for JSON. ids: a whole number of them."""
    return _unpacked("i", ids)


def unpack_logprobs(logprobs: bytes) -> list[float]:
    """Log probabilities as a list, for JSON. logprobs: a whole number of them."""
    return _unpacked("f", logprobs)


def common_tokens(one: bytes, other: bytes) -> int:
    """How many leading tokens agree."""
    left, right = memoryview(one), memoryview(other)
    low, high = 0, min(len(one), len(other)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        # Only the part not known to agree is compared again.
        part = slice(low * TOKEN_BYTES, middle * TOKEN_BYTES)
        if left[part] == right[part]:
            low = middle
        else:
            high = middle - 1
    return low


def _unpacked(kind: str, packed: bytes) -> list[Any]:
    numbers = array(kind)
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
