"""Responses: the model's answers, and the token counts of each."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    fill_each,
    put,
    put_overlay,
    require_object,
    take,
    texts,
    under,
)
from gymmesh_responses.items import fill_item, items_to_list
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, store, write

_TEXTS: Final = texts("id", "model", "status")
# What the objects in a response hold that has a field.
_DETAILS: Final = texts("reason")
_ERROR: Final = texts("code", "message")
_COUNTS: Final = frozenset(("input_tokens", "output_tokens", "total_tokens"))
# Objects whose one key may have a field; with any other they stay as they are.
_SOLE: Final = {
    "input_tokens_details": "cached_tokens",
    "output_tokens_details": "reasoning_tokens",
}


def response_from_json(source: JsonSource) -> pb.Response:
    """Read the body that `POST /v1/responses` returns.

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    response = pb.Response()
    fill_response(response, source)
    return response


def response_to_json(response: pb.Response) -> bytes:
    """Write a response as JSON; raises as `response_to_dict`."""
    return write(response_to_dict(response))


def response_to_dict(response: pb.Response) -> dict[str, JsonValue]:
    """A response as parsed JSON.

    Raises:
        CodecError: an item of no known kind, or a field that holds what JSON cannot.
    """
    return _to_dict(response, whole=True)


def response_head_to_dict(response: pb.Response) -> dict[str, JsonValue]:
    """`response_to_dict` without `output` and `usage`, for a caller that reads those itself.

    These keys are kept if the overlay has them. Raises the errors of `response_to_dict`, except
    those about items or token counts.
    """
    return _to_dict(response, whole=False)


def _to_dict(response: pb.Response, *, whole: bool) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, response, _TEXTS)
    if whole:
        if response.output or not response.output_omitted:
            out["output"] = under("output", items_to_list, response.output)
        if response.HasField("usage"):
            out["usage"] = under("usage", usage_to_dict, response.usage)
    if response.HasField("incomplete_details"):
        out["incomplete_details"] = under(
            "incomplete_details", incomplete_details_to_dict, response.incomplete_details
        )
    if response.HasField("error"):
        out["error"] = under("error", response_error_to_dict, response.error)
    return put_overlay(out, response.overlay_json)


def incomplete_details_to_dict(details: pb.IncompleteDetails) -> dict[str, JsonValue]:
    """Why an answer is incomplete, as parsed JSON; raises as `usage_to_dict`."""
    out: dict[str, JsonValue] = {}
    put(out, details, _DETAILS)
    return put_overlay(out, details.overlay_json)


def response_error_to_dict(error: pb.ResponseError) -> dict[str, JsonValue]:
    """An answer's error, as parsed JSON; raises as `usage_to_dict`."""
    out: dict[str, JsonValue] = {}
    put(out, error, _ERROR)
    return put_overlay(out, error.overlay_json)


def fill_response(response: pb.Response, source: JsonSource) -> None:
    """`response_from_json` into a new message.

    One that is a field of another message is set by that, unless there is nothing to be read.
    Raises as `response_from_json`.
    """
    rest = take(response, require_object(read(source), "a response"), _TEXTS)
    if type(rest.get("output")) is list:
        fill_each(response.output, rest.pop("output"), "output", fill_item)
    else:
        response.output_omitted = True
    if type(rest.get("usage")) is dict:
        try:
            _fill_usage(response.usage, rest.pop("usage"))
        except CodecError as error:
            raise error.within("usage") from None
    if type(rest.get("incomplete_details")) is dict:
        _take_object(rest, "incomplete_details", response.incomplete_details, _DETAILS)
    if type(rest.get("error")) is dict:
        _take_object(rest, "error", response.error, _ERROR)
    if rest:
        response.overlay_json = store(rest)


def _take_object(
    rest: dict[str, JsonValue], name: str, message: Any, kinds: dict[str, type]
) -> None:
    """Move the object of that name into the message."""
    message.SetInParent()
    inner = take(message, rest.pop(name), kinds)
    if inner:
        message.overlay_json = under(name, store, inner)


def usage_from_json(source: JsonSource) -> pb.Usage:
    """Read the `usage` object of a response.

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    usage = pb.Usage()
    _fill_usage(usage, require_object(read(source), "usage"))
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


def _fill_usage(usage: pb.Usage, source: dict[str, JsonValue]) -> None:
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
