"""Responses: the model's answers."""

from __future__ import annotations

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.fields import (
    Fit,
    Init,
    each,
    fill,
    put,
    put_overlay,
    require_object,
    under,
)
from gymmesh_responses.items import item_init, items_to_list
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, write
from gymmesh_responses.usage import usage_init, usage_to_dict


def response_from_json(source: JsonSource) -> pb.Response:
    """Read the body that `POST /v1/responses` returns.

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    return pb.Response(**response_init(require_object(read(source), "a response")))


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
    """`response_to_dict` without `output` and `usage`, for who reads those themselves.

    What of them stands in the overlay is there all the same. Raises as `response_to_dict`, but
    for what is wrong with an item or with token counts.
    """
    return _to_dict(response, whole=False)


def _to_dict(response: pb.Response, *, whole: bool) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, response, ("id", "model", "status"))
    if whole:
        if response.output or not response.output_omitted:
            out["output"] = under("output", items_to_list, response.output)
        if response.HasField("usage"):
            out["usage"] = under("usage", usage_to_dict, response.usage)
    if response.HasField("incomplete_details"):
        out["incomplete_details"] = under(
            "incomplete_details", _write_details, response.incomplete_details
        )
    if response.HasField("error"):
        out["error"] = under("error", _write_error, response.error)
    return put_overlay(out, response.overlay_json)


def response_init(response: dict[str, JsonValue]) -> Init:
    """Read a response."""
    return fill(response, {"output_omitted": True}, _EXACT, _FITS)


def _write_details(details: pb.IncompleteDetails) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, details, ("reason",))
    return put_overlay(out, details.overlay_json)


def _write_error(error: pb.ResponseError) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, error, ("code", "message"))
    return put_overlay(out, error.overlay_json)


def _output(value: JsonValue, init: Init) -> bool:
    if type(value) is not list:
        return False
    init["output"] = each(item_init, value)
    del init["output_omitted"]
    return True


def _usage(value: JsonValue, init: Init) -> bool:
    if type(value) is not dict:
        return False
    init["usage"] = usage_init(value)
    return True


def _object(field: str, exact: dict[str, type]) -> Fit:
    def fit(value: JsonValue, init: Init) -> bool:
        if type(value) is not dict:
            return False
        init[field] = fill(value, {}, exact, {})
        return True

    return fit


_EXACT: dict[str, type] = {"id": str, "model": str, "status": str}
_FITS: dict[str, Fit] = {
    "output": _output,
    "usage": _usage,
    "incomplete_details": _object("incomplete_details", {"reason": str}),
    "error": _object("error", {"code": str, "message": str}),
}
