"""Token ids and log probabilities as bytes: little-endian int32 and float32. Pure.

Lists of Python numbers exist only where JSON is read or written.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from gymmesh_model.errors import AnswerInvalid

WIDTH: Final = 4  # bytes of one token id, and of one log probability
_SWAP: Final = sys.byteorder == "big"


def pack_ids(ids: Any) -> bytes:
    """Token ids of parsed JSON, a list of integers. Raises AnswerInvalid."""
    return _packed("i", ids, "token ids")


def pack_logprobs(values: Any) -> bytes:
    """Log probabilities of parsed JSON, a list of numbers. Raises AnswerInvalid."""
    return _packed("f", values, "log probabilities")


def unpack_ids(ids: bytes) -> list[int]:
    """Token ids as a list, for JSON. ids: a whole number of them."""
    made = array("i")
    made.frombytes(ids)
    if _SWAP:
        made.byteswap()
    return made.tolist()


def count(ids: bytes) -> int:
    """How many there are."""
    return len(ids) // WIDTH


def common_tokens(one: bytes, other: bytes) -> int:
    """How many leading tokens agree."""
    most = min(len(one), len(other)) // WIDTH
    left, right = memoryview(one), memoryview(other)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        # Only the part not known to agree is compared again.
        if left[low * WIDTH : middle * WIDTH] == right[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def last_index(ids: bytes, token: bytes, start: int) -> int:
    """The place of the last `token` at or after the place `start`, or -1."""
    for place in range(count(ids) - 1, start - 1, -1):
        if ids[place * WIDTH : (place + 1) * WIDTH] == token:
            return place
    return -1


def _packed(kind: str, values: Any, what: str) -> bytes:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise AnswerInvalid(f"its {what} are not a list")
    try:
        made = array(kind, values)
    except (TypeError, ValueError, OverflowError):
        raise AnswerInvalid(f"its {what} are not numbers of 32 bits") from None
    if _SWAP:
        made.byteswap()
    return made.tobytes()
