"""Parameters: the body of a request for a response."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.errors import CodecError
from gymmesh_responses.fields import (
    fill_each,
    is_int64,
    put,
    put_overlay,
    require_object,
    take,
    take_json,
    take_number,
    texts,
    under,
    write_number,
)
from gymmesh_responses.items import fill_item, items_to_list
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, read_field, store, write
from gymmesh_responses.tools import fill_tool, tools_to_list

_SCALARS: Final = (
    "model",
    "instructions",
    "parallel_tool_calls",
    "max_output_tokens",
    "previous_response_id",
)
_KINDS: Final = {
    **texts("model", "instructions", "previous_response_id"),
    "parallel_tool_calls": bool,
}
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
    params = pb.ResponseParams()
    _fill(params, require_object(read(source), "parameters"))
    return params


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
    """`params_to_dict` without `input`, for a caller that reads the items itself.

    An `input` in the overlay is kept. Raises the errors of `params_to_dict`, except those about
    items.
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
        out["tools"] = under("tools", tools_to_list, params.tools)
    # A number with no value set counts as absent.
    if params.temperature.WhichOneof("value"):
        out["temperature"] = under("temperature", write_number, params.temperature)
    if params.top_p.WhichOneof("value"):
        out["top_p"] = under("top_p", write_number, params.top_p)
    _put_json(out, params)
    return put_overlay(out, params.overlay_json)


def _fill(params: pb.ResponseParams, document: dict[str, JsonValue]) -> None:
    rest = take(params, document, _KINDS)
    given = rest.get("input")
    if type(given) is list:
        fill_each(params.input, rest.pop("input"), "input", fill_item)
    elif type(given) is str:
        params.input_text = rest.pop("input")
    else:
        params.input_omitted = True
    if type(rest.get("tools")) is list:
        fill_each(params.tools, rest.pop("tools"), "tools", fill_tool)
    else:
        params.tools_omitted = True
    take_number(rest, params, "temperature")
    take_number(rest, params, "top_p")
    if is_int64(rest.get("max_output_tokens")):
        params.max_output_tokens = rest.pop("max_output_tokens")
    take_json(rest, params, "tool_choice", str, dict)
    for name in ("text", "reasoning", "metadata"):
        take_json(rest, params, name, dict)
    if rest:
        params.overlay_json = store(rest)


def _put_json(out: dict[str, JsonValue], params: Any) -> None:
    for key, field in _JSON_FIELDS.items():
        raw = getattr(params, field)
        if raw or params.HasField(field):
            out[key] = read_field(raw, key)
