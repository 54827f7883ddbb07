"""Parameters: the body of a request for a response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    Fit,
    Init,
    each,
    fill,
    int64,
    number,
    put,
    put_overlay,
    raw_json,
    require_object,
    under,
    write_each,
    write_number,
)
from gymmesh_responses.items import item_init, items_to_list
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, read_field, write
from gymmesh_responses.tools import tool_init, tool_to_dict

_SCALARS = (
    "model",
    "instructions",
    "parallel_tool_calls",
    "max_output_tokens",
    "previous_response_id",
)
_JSON_FIELDS = {
    "tool_choice": "tool_choice_json",
    "text": "text_json",
    "reasoning": "reasoning_json",
    "metadata": "metadata_json",
}


def params_from_json(source: JsonSource) -> pb.ResponseParams:
    """Read the body of `POST /v1/responses` (`responses_create_params` of a task row).

    Raises:
        CodecError: not JSON, not an object, or nested too deeply.
    """
    return pb.ResponseParams(**params_init(require_object(read(source), "parameters")))


def params_to_json(params: pb.ResponseParams) -> bytes:
    """Write parameters as JSON; raises as `params_to_dict`."""
    return write(params_to_dict(params))


def params_to_dict(params: pb.ResponseParams) -> dict[str, JsonValue]:
    """Parameters as parsed JSON.

    Raises:
        CodecError: both `input` and `input_text` are set, or a field holds what
            JSON cannot.
    """
    return _to_dict(params, whole=True)


def settings_to_dict(params: pb.ResponseParams) -> dict[str, JsonValue]:
    """`params_to_dict` without `input`, for who reads the items themselves.

    An `input` that stands in the overlay is there all the same. Raises as `params_to_dict`,
    but for what is wrong with an item.
    """
    return _to_dict(params, whole=False)


def _to_dict(params: pb.ResponseParams, *, whole: bool) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {}
    put(out, params, _SCALARS)
    if params.HasField("input_text"):
        if params.input:
            raise CodecError("given both as text and as a list of items", ("input",))
        out["input"] = params.input_text
    elif whole and (params.input or not params.input_omitted):
        out["input"] = under("input", items_to_list, params.input)
    if params.tools or not params.tools_omitted:
        out["tools"] = under("tools", _write_tools, params.tools)
    # A number with no value set counts as absent.
    if params.temperature.WhichOneof("value"):
        out["temperature"] = under("temperature", write_number, params.temperature)
    if params.top_p.WhichOneof("value"):
        out["top_p"] = under("top_p", write_number, params.top_p)
    _put_json(out, params)
    return put_overlay(out, params.overlay_json)


def params_init(params: dict[str, JsonValue]) -> Init:
    """Read parameters."""
    init: Init = {"input_omitted": True, "tools_omitted": True}
    return fill(params, init, _EXACT, _FITS)


def _write_tools(tools: Iterable[pb.Tool]) -> list[JsonValue]:
    return write_each(tool_to_dict, tools)


def _put_json(out: dict[str, JsonValue], params: Any) -> None:
    for key, field in _JSON_FIELDS.items():
        raw = getattr(params, field)
        if raw or params.HasField(field):
            out[key] = read_field(raw, key)


def _input(value: JsonValue, init: Init) -> bool:
    if type(value) is list:
        init["input"] = each(item_init, value)
    elif type(value) is str:
        init["input_text"] = value
    else:
        return False
    del init["input_omitted"]
    return True


def _tools(value: JsonValue, init: Init) -> bool:
    if type(value) is not list:
        return False
    init["tools"] = each(tool_init, value)
    del init["tools_omitted"]
    return True


_EXACT: dict[str, type] = {
    "model": str,
    "instructions": str,
    "parallel_tool_calls": bool,
    "previous_response_id": str,
}
_FITS: dict[str, Fit] = {
    "input": _input,
    "tools": _tools,
    "tool_choice": raw_json("tool_choice_json", str, dict),
    "temperature": number("temperature"),
    "top_p": number("top_p"),
    "max_output_tokens": int64("max_output_tokens"),
    "text": raw_json("text_json", dict),
    "reasoning": raw_json("reasoning_json", dict),
    "metadata": raw_json("metadata_json", dict),
}
