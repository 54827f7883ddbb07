"""Usage: the token counts of one call."""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.fields import (
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
    usage = pb.Usage()
    fill_usage(usage, require_object(read(source), "usage"))
    return usage


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


def fill_usage(usage: pb.Usage, source: dict[str, JsonValue]) -> None:
    """Read token counts."""
    rest: dict[str, JsonValue] = {}
    for key, value in source.items():
        field, count = key, None
        if key in _COUNTS:
            count = value
        elif key in _SOLE and type(value) is dict and len(value) == 1:
            field = _SOLE[key]
            count = value.get(field)
        if type(count) is int:
            try:
                setattr(usage, field, count)
                continue
            except ValueError:
                pass  # beyond the range of int64
        rest[key] = value
    if rest:
        usage.overlay_json = store(rest)
    elif not source:
        usage.SetInParent()
