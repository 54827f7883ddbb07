"""Responses: the model's answers."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import fill_each, put, put_overlay, require_object, take, under
from gymmesh_responses.items import fill_item, items_to_list
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, store, write
from gymmesh_responses.usage import fill_usage, usage_to_dict

# Of the class, since a message looks through the names of its fields to find its methods.
_HAS: Final = pb.Response.HasField


def response_from_json(source: JsonSource) -> pb.Response:
    """Read the body that `POST /v1/responses` returns.

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    document = response_document(source)
    response = pb.Response()
    fill_response(response, document.copy() if document is source else document)
    return response


def response_document(source: JsonSource) -> dict[str, JsonValue]:
    """The document of a response, for `fill_response`; raises as `response_from_json`."""
    return require_object(read(source), "a response")


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
        if _HAS(response, "usage"):
            out["usage"] = under("usage", usage_to_dict, response.usage)
    if _HAS(response, "incomplete_details"):
        out["incomplete_details"] = under(
            "incomplete_details", _write_details, response.incomplete_details
        )
    if _HAS(response, "error"):
        out["error"] = under("error", _write_error, response.error)
    return put_overlay(out, response.overlay_json)


def _write_details(details: pb.IncompleteDetails) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, details, ("reason",))
    return put_overlay(out, details.overlay_json)


def _write_error(error: pb.ResponseError) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, error, ("code", "message"))
    return put_overlay(out, error.overlay_json)


def fill_response(response: pb.Response, rest: dict[str, JsonValue]) -> None:
    """Read what `response_document` gave, which is of no use any more then, into a new message.

    One that is a field of another message is set by that, unless there is nothing to be read.

    Raises:
        CodecError: nested too deeply.
    """
    # As `take` would, written out: this is done for every answer.
    text = rest.get("id")
    if type(text) is str:
        response.id = text
        del rest["id"]
    text = rest.get("model")
    if type(text) is str:
        response.model = text
        del rest["model"]
    text = rest.get("status")
    if type(text) is str:
        response.status = text
        del rest["status"]
    output = rest.get("output")
    if type(output) is list:
        del rest["output"]
        fill_each(response.output, output, "output", fill_item)
    else:
        response.output_omitted = True
    usage = rest.get("usage")
    if type(usage) is dict:
        del rest["usage"]
        try:
            fill_usage(response.usage, usage)
        except CodecError as error:
            raise error.within("usage") from None
    if type(rest.get("incomplete_details")) is dict:
        _take_object(rest, "incomplete_details", response.incomplete_details, ("reason",))
    if type(rest.get("error")) is dict:
        _take_object(rest, "error", response.error, ("code", "message"))
    if rest:
        response.overlay_json = store(rest)


def _take_object(
    rest: dict[str, JsonValue], name: str, message: Any, texts: tuple[str, ...]
) -> None:
    """Move the object of that name into the message."""
    message.SetInParent()
    inner = rest.pop(name).copy()
    take(inner, message, texts)
    if inner:
        try:
            message.overlay_json = store(inner)
        except CodecError as error:
            raise error.within(name) from None
