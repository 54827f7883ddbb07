"""Side data of a model call: which numbers a row has, and where they are stored. Pure.

The model service writes it, the agent checks it, and trainers read it; see SideData in
tokens.proto.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gymmesh.model.v1 import tokens_pb2

SIDE_DATA_DTYPES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "int8": 1,
        "uint8": 1,
        "int16": 2,
        "uint16": 2,
        "int32": 4,
        "float16": 2,
        "bfloat16": 2,
        "float32": 4,
    }
)
"""The types of numbers, with the number of bytes of each type."""
MOST_INLINE_BYTES: Final = 4096
"""Side data of at most this many bytes is stored in the message itself."""
DIGEST_BYTES: Final = hashlib.sha256().digest_size
_LONGEST_NAME: Final = 64


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of one token's row. Raises ValueError for a type or shape that side data can't have."""
    if dtype not in SIDE_DATA_DTYPES:
        known = ", ".join(SIDE_DATA_DTYPES)
        raise ValueError(f"dtype: unknown type {dtype!r}; known types: {known}")
    if any(length < 1 for length in shape):
        raise ValueError(f"shape: each length must be at least 1, not {list(shape)}")
    return SIDE_DATA_DTYPES[dtype] * math.prod(shape)


def side_data_bytes(side: tokens_pb2.SideData) -> int:
    """Bytes of all its rows. Raises ValueError as `row_bytes`."""
    return row_bytes(side.dtype, side.shape) * side.tokens


def side_data_place(digest: bytes) -> str:
    """Where the numbers are in a folder of side data: `6f/6f1e…`, by their digest."""
    name = digest.hex()
    return f"{name[:2]}/{name}"


def side_data_problem(found: Iterable[tokens_pb2.SideData], total: int) -> str:
    """What is wrong with the side data of a call, as a clause; empty: nothing.

    Stored numbers are not read. total: how many tokens the call's prompt and output have.
    """
    names = set[str]()
    for side in found:
        if not side.name or len(side.name) > _LONGEST_NAME or side.name in names:
            return f"the name {side.name[:_LONGEST_NAME]!r} is empty, too long, or not unique"
        names.add(side.name)
        if problem := _problem(side, total):
            return f"{side.name}: {problem}"
    return ""


def _problem(side: tokens_pb2.SideData, total: int) -> str:
    try:
        size = side_data_bytes(side)
    except ValueError as error:
        return str(error)
    if side.tokens < 1 or side.first_token + side.tokens > total:
        return (
            f"it has {side.tokens} rows from token {side.first_token} on, but needs at least 1 row "
            f"and only rows of the call's {total} tokens"
        )
    if len(side.digest) != DIGEST_BYTES:
        return f"its digest has {len(side.digest)} bytes, not {DIGEST_BYTES}"
    if bool(side.data) == bool(side.location):
        return "it must have either data or a location"
    if side.location:
        return ""
    if size > MOST_INLINE_BYTES:
        return (
            f"it has {size} bytes of numbers in the message; at most {MOST_INLINE_BYTES} "
            "are allowed"
        )
    if len(side.data) != size:
        return f"it has {len(side.data)} bytes of numbers, not {size}"
    if hashlib.sha256(side.data).digest() != side.digest:
        return "its numbers differ from their digest"
    return ""
