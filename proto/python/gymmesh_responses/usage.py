"""Usage: the token counts of one call."""

from __future__ import annotations

from operator import itemgetter

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
_KEYS = itemgetter(
    "input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"
)


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


def _fill_usual(usage: pb.Usage, source: dict[str, JsonValue]) -> bool:
    """Reads token counts as endpoints write them, all that have a field; False for any other.

    Raises KeyError for other keys, and ValueError for a count that is too large; then some
    counts have been read.
    """
    read, given, written, thought, total = _KEYS(source)
    if not (type(given) is type(thought) is dict and len(given) == len(thought) == 1):
        return False
    cached, reasoning = given["cached_tokens"], thought["reasoning_tokens"]
    if not (type(read) is type(cached) is type(written) is type(reasoning) is type(total) is int):
        return False
    usage.input_tokens = read
    usage.cached_tokens = cached
    usage.output_tokens = written
    usage.reasoning_tokens = reasoning
    usage.total_tokens = total
    return True


def fill_usage(usage: pb.Usage, source: dict[str, JsonValue]) -> None:
    """Read token counts."""
    if len(source) == 5:
        try:
            if _fill_usual(usage, source):
                return
        except (KeyError, ValueError):
            pass  # another key, or a count beyond the range of int64
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
