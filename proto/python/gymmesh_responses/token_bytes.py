"""Token ids and log probabilities as the contract carries them: little-endian int32 and float32."""

from __future__ import annotations

import math
import sys
from array import array
from typing import Any, Final

TOKEN_BYTES: Final = 4
"""The number of bytes of one token id, and of one log probability."""
LOGPROB_ROUNDING: Final = 1e-3
"""The most by which a log probability can exceed 0, since it is computed in float32 or less."""
_MINUS: Final = bytes(range(128, 256))


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


def token_problem(ids: bytes, logprobs: bytes = b"") -> str:
    """What is wrong with token ids and their log probabilities, as a clause; empty: nothing.

    An id is at least 0. A log probability is finite and at most 0, but for rounding, and there are
    none, or as many as ids.
    """
    if len(ids) % TOKEN_BYTES:
        return f"the token ids are {len(ids)} bytes, which is not a multiple of {TOKEN_BYTES}"
    if not ids[TOKEN_BYTES - 1 :: TOKEN_BYTES].isascii():  # the sign is in an id's last byte
        return f"the token id {min(_array('i', ids))} is negative"
    if not logprobs:
        return ""
    if len(logprobs) != len(ids):
        return f"there are {len(ids)} bytes of token ids and {len(logprobs)} of log probabilities"
    known = _array("f", logprobs)
    if not math.isfinite(sum(known)):
        return "a log probability is not finite"
    if (greatest := max(known)) > LOGPROB_ROUNDING:
        return f"the log probability {greatest:g} is positive"
    return ""


def greatest_logprob(logprobs: bytes) -> float:
    """The greatest log probability that is finite; 0.0 where none is above 0."""
    # Mostly all have a minus, which is in a number's last byte.
    if not logprobs[TOKEN_BYTES - 1 :: TOKEN_BYTES].translate(None, _MINUS):
        return 0.0
    return max(0.0, max(filter(math.isfinite, _array("f", logprobs)), default=0.0))


def _unpacked(kind: str, packed: bytes) -> list[Any]:
    numbers: list[Any] = _array(kind, packed).tolist()
    return numbers


def _array(kind: str, packed: bytes) -> array[Any]:
    numbers = array(kind)
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
