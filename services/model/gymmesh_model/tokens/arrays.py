"""Token ids and log probabilities of parsed JSON as the contract's bytes, and places in them. Pure.

Lists of Python numbers exist only where JSON is read or written.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import TOKEN_BYTES


def pack_ids(ids: Any) -> bytes:
    """Token ids of parsed JSON, a list of integers. Raises AnswerInvalid."""
    return _packed("i", ids, "token ids")


def pack_logprobs(values: Any) -> bytes:
    """Log probabilities of parsed JSON, a list of numbers. Raises AnswerInvalid."""
    return _packed("f", values, "log probabilities")


def count(ids: bytes) -> int:
    """How many there are."""
    return len(ids) // TOKEN_BYTES


def last_index(ids: bytes, token: bytes, start: int) -> int:
    """The place of the last `token` at or after the place `start`, or -1."""
    for place in range(count(ids) - 1, start - 1, -1):
        if ids[place * TOKEN_BYTES : (place + 1) * TOKEN_BYTES] == token:
            return place
    return -1


def _packed(kind: str, values: Any, what: str) -> bytes:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise AnswerInvalid(f"its {what} are not a list")
    try:
        made = array(kind, values)
    except (TypeError, ValueError, OverflowError):
        raise AnswerInvalid(f"its {what} are not numbers of 32 bits") from None
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()
