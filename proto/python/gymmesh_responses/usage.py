"""Usage: the token counts of one call."""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.fields import (
    INT64_MAX,
    INT64_MIN,
    Init,
    put,
    put_overlay,
    require_object,
)
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, store, write

_COUNTS = frozenset(("input_tokens", "output_tokens", "total_tokens"))
# Objects whose one key may have a field; with any other they stay as they are.
_SOLE = {"input_tokens_details": "cached_tokens", "output_tokens_details": "reasoning_tokens"}


def usage_from_json(source: JsonSource) -> pb.Usage:
    """Read the `usage` object of a response.

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    return pb.Usage(**usage_init(require_object(read(source), "usage")))


def usage_to_json(usage: pb.Usage) -> bytes:
    """Write token counts as JSON; raises as `usage_to_dict`."""
    return write(usage_to_dict(usage))


def usage_to_dict(usage: pb.Usage) -> dict[str, JsonValue]:
    """Token counts as parsed JSON.

    Raises:
        CodecError: the overlay is not a JSON object.
    """
    out: dict[str, JsonValue] = {}
    put(out, usage, ("input_tokens", "output_tokens", "total_tokens"))
    if usage.HasField("cached_tokens"):
        out["input_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.HasField("reasoning_tokens"):
        out["output_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return put_overlay(out, usage.overlay_json)


def usage_init(usage: dict[str, JsonValue]) -> Init:
    """Read token counts."""
    init: Init = {}
    rest: dict[str, JsonValue] = {}
    for key, value in usage.items():
        field, number = key, value
        if key in _SOLE and type(value) is dict and len(value) == 1:
            field = _SOLE[key]
            number = value.get(field)
        elif key not in _COUNTS:
            rest[key] = value
            continue
        if type(number) is int and INT64_MIN <= number <= INT64_MAX:
            init[field] = number
        else:
            rest[key] = value
    if rest:
        init["overlay_json"] = store(rest)
    return init
