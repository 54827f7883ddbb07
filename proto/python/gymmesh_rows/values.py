"""The values of the generated columns: values of messages, by the JSON rule. Pure."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import (
    TOKEN_BYTES,
    CodecError,
    dumps_clean,
    incomplete_details_to_dict,
    item_to_json,
    loads,
    response_error_to_dict,
    token_problem,
    unpack_ids,
    unpack_logprobs,
    usage_to_json,
)

encode: Final = msgspec.json.Encoder().encode
# Longer lists are written in pieces of so many: other threads wait while one is.
_PIECE: Final = 256


def json_text(raw: bytes, key: str) -> Raw:
    """JSON on one line. Raises CodecError, which names the key, for what is not JSON."""
    try:
        return Raw(dumps_clean(loads(raw)))
    except CodecError as error:
        raise error.within(key) from None


def finite(value: float, key: str) -> float:
    """The number. Raises ValueError for one that JSON does not have."""
    if math.isfinite(value):
        return value
    raise ValueError(f"{key}: {value} is not a JSON number")


def ids(packed: bytes) -> list[int]:
    """Token ids. Raises ValueError for a wrong length or a negative id."""
    if not packed:
        return []
    if problem := token_problem(packed):
        raise ValueError(f"tokens: {problem}")
    return unpack_ids(packed)


def logprobs(packed: bytes) -> list[float | None]:
    """Log probabilities, of which those that are not finite are written as null. Raises ValueError
    for a wrong length.
    """
    if len(packed) % TOKEN_BYTES:
        raise ValueError(
            f"tokens: the log probabilities are {len(packed)} bytes, which is not a multiple of "
            f"{TOKEN_BYTES}"
        )
    numbers: list[Any] = unpack_logprobs(packed)
    return numbers


def cut_text(raw: bytes) -> str:
    """Text that may be cut anywhere."""
    return raw.decode("utf-8", "replace")


def base64_text(raw: bytes) -> str:
    """Base64 with padding."""
    return b64encode(raw).decode("ascii")


def item(message: responses_pb2.Item) -> Raw:
    """An item of a conversation. Raises CodecError for one of no known kind."""
    return Raw(item_to_json(message))


class _PlainUsage(msgspec.Struct, omit_defaults=True, gc=False):
    """The tokens of an answer that says nothing else of them: each call has one."""

    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET
    input_tokens_details: dict[str, int] | UnsetType = UNSET
    output_tokens_details: dict[str, int] | UnsetType = UNSET


def usage(message: responses_pb2.Usage) -> Any:
    """The tokens of an answer, for `encode`."""
    if message.overlay_json:
        return Raw(usage_to_json(message))
    made = _PlainUsage()
    if message.HasField("input_tokens"):
        made.input_tokens = message.input_tokens
    if message.HasField("output_tokens"):
        made.output_tokens = message.output_tokens
    if message.HasField("total_tokens"):
        made.total_tokens = message.total_tokens
    if message.HasField("cached_tokens"):
        made.input_tokens_details = {"cached_tokens": message.cached_tokens}
    if message.HasField("reasoning_tokens"):
        made.output_tokens_details = {"reasoning_tokens": message.reasoning_tokens}
    return made


def incomplete_details(message: responses_pb2.IncompleteDetails) -> Raw:
    """Why an answer is incomplete."""
    return Raw(dumps_clean(incomplete_details_to_dict(message)))


def response_error(message: responses_pb2.ResponseError) -> Raw:
    """An answer's error."""
    return Raw(dumps_clean(response_error_to_dict(message)))


def listed(elements: Iterable[Any]) -> Any:
    """A list for `encode`: a long list as JSON text, made piece by piece. Elements that an iterator
    makes are let go with their piece: very many objects at once would stop all threads when the
    garbage collector looks at them, and when they are freed.
    """
    rest = iter(elements)
    piece = list(islice(rest, _PIECE))
    if len(piece) < _PIECE:
        return piece
    pieces = []
    while piece:
        pieces.append(encode(piece)[1:-1])
        piece = list(islice(rest, _PIECE))
    return Raw(b"[" + b",".join(pieces) + b"]")


def with_overlay(written: bytes, overlay: bytes) -> bytes:
    """An object that was written with the members of another one, none of which it has, behind its
    own. overlay: an object without white space around it; empty: none.
    """
    if len(overlay) <= len(b"{}"):
        return written
    if len(written) == len(b"{}"):
        return overlay
    return b"%b,%b" % (written[:-1], overlay[1:])


def overlaid(columns: msgspec.Struct, overlay: bytes) -> Raw:
    """As `with_overlay`, of columns that are not written yet."""
    return Raw(with_overlay(encode(columns), overlay))
