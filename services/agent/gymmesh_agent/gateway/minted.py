"""Ids of the gateway's output: each names a recorded call and an output item. Pure.

Programs send ids, signatures and encrypted contents back verbatim, even if they change the rest of
an item. So an item that returns with a minted id is the recorded item.

    call_gm3f9c0a1e-c12-0
         | |        |   `- the place in the call's output, from 0
         | |        `----- the recorded call's id
         | `-------------- the rollout's tag: an id of another rollout names nothing here
         `---------------- marks an id as minted

Letters, digits, `_` and `-`, at most 40 characters: every dialect and every program accepts those.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final, NamedTuple

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses import CodecError, loads

LONGEST_MINTED_ID: Final = 40
"""The maximum number of characters of a minted id."""

_CALL: Final = re.compile(r"[A-Za-z0-9]{1,12}")
_PREFIX: Final = re.compile(r"[a-z]{1,6}")
_MINTED: Final = re.compile(r"(?:[a-z]{1,6}_)?gm([0-9a-f]{8})-([A-Za-z0-9]{1,12})-([0-9]{1,5})")
_MOST_OUTPUTS: Final = 100_000


class Minted(NamedTuple):
    """What a minted id names.

    Attributes:
        tag: the rollout's tag, see `tag_of`.
        call_id: the recorded call.
        output: the index of the item in the call's output, from 0.
    """

    tag: str
    call_id: str
    output: int

    def id(self, prefix: str) -> str:
        """The id in a dialect's spelling, such as `toolu_…` for the prefix `toolu`.

        Raises:
            ValueError: the call's id or the prefix has characters that an id can't contain, or the
                index is above 99,999.
        """
        if not (_CALL.fullmatch(self.call_id) and _PREFIX.fullmatch(prefix)):
            raise ValueError(
                f"no id can be made from the prefix {prefix!r} and the call {self.call_id!r}"
            )
        if not 0 <= self.output < _MOST_OUTPUTS:
            raise ValueError(f"no id can be made for output {self.output}")
        return f"{prefix}_gm{self.tag}-{self.call_id}-{self.output}"


def tag_of(rollout_id: str, attempt: int) -> str:
    """The tag of an attempt's ids: eight hexadecimal digits."""
    return blake2b(f"{rollout_id}/{attempt}".encode(), digest_size=4).hexdigest()


def minted(text: str) -> Minted | None:
    """What the id names; None: the gateway did not mint it."""
    if len(text) > LONGEST_MINTED_ID:
        return None
    found = _MINTED.fullmatch(text)
    return Minted(found[1], found[2], int(found[3])) if found else None


def minted_of(item: pb.Item) -> Minted | None:
    """The recorded output item that a request's item represents, by its ids; None: unknown.

    A tool's output has the id of the call that it answers; `answers_minted` reads that id.
    """
    kind = item.WhichOneof("kind")
    if kind == "function_call":
        return minted(item.function_call.call_id) or minted(item.function_call.id)
    if kind == "message":
        return minted(item.message.id)
    if kind == "reasoning":
        return minted(item.reasoning.id) or minted(item.reasoning.encrypted_content)
    if kind == "opaque" and not item.opaque.type.endswith("_output"):
        return _minted_opaque(item.opaque, "call_id", "id")
    return None


def answers_minted(item: pb.Item) -> Minted | None:
    """The recorded function call that a tool's output answers; None: unknown, or not an output."""
    kind = item.WhichOneof("kind")
    if kind == "function_call_output":
        return minted(item.function_call_output.call_id)
    if kind == "opaque" and item.opaque.type.endswith("_output"):
        return _minted_opaque(item.opaque, "call_id")
    return None


def _minted_opaque(item: pb.OpaqueItem, *keys: str) -> Minted | None:
    if b"gm" not in item.json:
        return None
    try:
        document = loads(item.json)
    except CodecError:
        return None
    if not isinstance(document, dict):
        return None
    for key in keys:
        value = document.get(key)
        if isinstance(value, str) and (found := minted(value)):
            return found
    return None
