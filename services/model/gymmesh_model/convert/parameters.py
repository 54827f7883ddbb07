"""The walk over Responses parameters that all conversions of requests share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gymmesh_model.errors import unsupported
from gymmesh_runtime.errors import field_invalid

_ECHOED: Final = frozenset(("metadata", "store", "max_tool_calls", "stream_options"))
_SAID_APART: Final = frozenset(("input", "instructions"))

OFF: Final[Mapping[str, object]] = {"background": False, "stream": False, "truncation": "disabled"}
"""The only value that each of these parameters can have in APIs other than Responses."""

LACKING: Final = frozenset(
    ("previous_response_id", "conversation", "prompt", "context_management", "moderation")
)
"""Parameters of the Responses API that no other API has."""


def asked(
    params: Mapping[str, Any], api: str, lacking: frozenset[str], off: Mapping[str, object] = OFF
) -> Iterator[tuple[str, Any]]:
    """The parameters to convert, without the conversation.

    Omits three kinds of parameters: null; parameters that the response repeats and the API does not
    need; and parameters with the only value that the API offers.

    Args:
        api: the API's name, for messages.
        lacking: the parameters that the API can't represent.
        off: parameters with the only value that the API offers.

    Raises MeshError PARAMETER_UNSUPPORTED.
    """
    for key, value in params.items():
        if value is None or key in _SAID_APART or key in _ECHOED:
            continue
        if key in lacking:
            raise unsupported(key, f"{api} has no such parameter")
        if key not in off:
            yield key, value
        elif value != off[key] or type(value) is not type(off[key]):
            raise unsupported(key, f"only {off[key]!r} is supported")


def function_tools(value: object) -> list[tuple[Mapping[str, Any], str]]:
    """The tools of a request with their positions. Tools without a name are skipped.

    Raises MeshError FIELD_INVALID, or PARAMETER_UNSUPPORTED for a tool that is not a function.
    """
    if not isinstance(value, list):
        raise field_invalid("params.tools", "must be a list")
    places = [f"tools[{index}]" for index in range(len(value))]
    return [(_checked(tool, place), place) for tool, place in zip(value, places, strict=True)]


def _checked(tool: object, place: str) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping):
        raise field_invalid(f"params.{place}", "must be an object")
    if tool.get("type") != "function":
        raise unsupported(f"{place}.type", f"'{tool.get('type')}' is not a function tool")
    if not isinstance(tool.get("name"), str):
        raise field_invalid(f"params.{place}.name", "must be text")
    return tool
