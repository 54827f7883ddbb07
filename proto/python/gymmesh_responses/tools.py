"""Tools: what the model may call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_responses.fields import (
    Writers,
    fill_opaque,
    put,
    put_overlay,
    take,
    take_json,
    write_kind,
    write_kinds,
    write_opaque,
)
from gymmesh_responses.jsonio import JsonSource, JsonValue, read, read_field, store, write

_SCALARS: Final = {"name": str, "description": str, "strict": bool}


def tool_from_json(source: JsonSource) -> pb.Tool:
    """Read one tool; any but a function becomes an OpaqueTool.

    Raises:
        CodecError: not JSON, or nested too deeply.
    """
    tool = pb.Tool()
    fill_tool(tool, read(source))
    return tool


def tool_to_json(tool: pb.Tool) -> bytes:
    """Write one tool as JSON; raises as `tool_to_dict`."""
    return write(tool_to_dict(tool))


def tool_to_dict(tool: pb.Tool) -> JsonValue:
    """One tool as parsed JSON: a dict, or the value that was in the place of a tool.

    Raises:
        CodecError: no kind is set, or JSON can't represent a field's value.
    """
    return write_kind(tool, _WRITERS)


def tools_to_list(tools: Iterable[pb.Tool]) -> list[JsonValue]:
    """Tools as parsed JSON; raises as `tool_to_json`."""
    return write_kinds(tools, _WRITERS)


def fill_tool(tool: pb.Tool, value: JsonValue) -> None:
    """Read one tool."""
    if type(value) is not dict or value.get("type") != "function":
        fill_opaque(tool.opaque, value)
        return
    function = tool.function
    function.SetInParent()
    rest = take(function, value, _SCALARS)
    del rest["type"]
    take_json(rest, function, "parameters", dict)
    if rest:
        function.overlay_json = store(rest)


def _write_function(tool: pb.FunctionTool) -> dict[str, JsonValue]:
    out: dict[str, JsonValue] = {"type": "function"}
    put(out, tool, _SCALARS)
    if tool.HasField("parameters_json"):
        out["parameters"] = read_field(tool.parameters_json, "parameters")
    return put_overlay(out, tool.overlay_json)


_WRITERS: Final[Writers] = {
    "function": _write_function,
    "opaque": write_opaque,
}
