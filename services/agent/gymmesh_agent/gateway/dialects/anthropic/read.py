"""Reads `POST /v1/messages` and its `count_tokens`: parameters and tools; messages.py reads the
messages. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.anthropic.messages import read_messages, read_system
from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.hints import read_hints, session_of_user
from gymmesh_agent.gateway.dialects.reading import (
    Draft,
    UnreadableRequest,
    a_list,
    a_text,
    an_object,
    body_of,
    shown,
    tools_in,
    total,
)
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.request import GatewayRequest, Json, ReplyOptions

#: What a request may hold that `params` lacks, and why that does no harm.
LEFT_OUT: Final[Mapping[str, str]] = {
    "anthropic_beta": "switches on features of the endpoint",
    "anthropic_version": "names the version of the API",
    "betas": "switches on features of the endpoint",
    "cache_control": "chooses a cache at the endpoint",
    "context_management": (
        "removes old contents at the endpoint, but the gateway sends all contents to the policy"
    ),
    "inference_geo": "chooses the region of the endpoint",
    "mcp_servers": "the default is an empty list, and the gateway refuses any other list",
    "metadata": (
        "this field is for the records of the endpoint. The gateway reads this field only to "
        "find the session of the program"
    ),
    "service_tier": "chooses a price at the endpoint",
    "speed": "chooses a speed and a price at the endpoint",
    "thinking": (
        "the parameters of the run decide whether the policy reasons. This field only decides "
        "whether the gateway sends the reasoning to the program"
    ),
    # Parts of parameters, of the system text, of tools and of messages.
    "output_config.effort": "the parameters of the run decide how much the policy reasons",
    "system.billing_header": (
        "this text is only for the records of the endpoint, and changes with every request"
    ),
    "tools": (
        "some keys of a tool control how the endpoint caches, loads or streams the tool, and the "
        "policy does not need these keys"
    ),
    "messages": (
        "the items of the Responses API have no field for citations, titles and contexts of "
        "documents"
    ),
}
#: Keys of a tool that say how the endpoint handles it.
_TOOL_NOTES: Final = frozenset(
    ("allowed_callers", "cache_control", "defer_loading", "eager_input_streaming", "input_examples")
)
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


@total
def read_anthropic(
    route: GatewayRoute, headers: Mapping[str, str], raw: bytes, seen: SeenRequests
) -> GatewayRequest:
    """Read a request; see `Dialect.read`."""
    body = body_of(raw)
    draft = Draft(LEFT_OUT, seen)
    read_system(draft, body.get("system"))
    read_messages(draft, a_list(body.get("messages"), "messages"))
    draft.tools = [
        _tool(draft, tool, f"tools[{index}]") for index, tool in enumerate(tools_in(body))
    ]
    for key, read in _READERS.items():
        if body.get(key) is not None:
            read(draft, body[key])
    draft.carry(body, _READ)
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    thinking = body.get("thinking")
    shows = isinstance(thinking, dict) and thinking.get("type") in ("enabled", "adaptive")
    return draft.request(
        route,
        model=body.get("model"),
        stream=body.get("stream"),
        hints=read_hints(headers, session=session_of_user(user)),
        reply=ReplyOptions(reasoning=shows),
    )


def _tool(draft: Draft, tool: object, place: str) -> Json:
    """A program's own tool as a function; a tool that the endpoint defines is unchanged."""
    given = an_object(tool, place)
    kind = given.get("type")
    kept = {
        key: value
        for key, value in given.items()
        if value is not None and key not in _TOOL_NOTES and key != "type"
    }
    if any(given.get(key) is not None for key in _TOOL_NOTES):
        draft.leave_out("tools")
    if kind not in (None, "custom"):
        return {"type": kind, **kept}
    made: Json = {"type": "function", "name": a_text(kept.pop("name", None), f"{place}.name")}
    if "input_schema" in kept:
        made["parameters"] = kept.pop("input_schema")
    return {**made, **kept}


def _same(name: str) -> Callable[[Draft, object], None]:
    """Reads a parameter that has this name in Responses."""

    def read(draft: Draft, value: object) -> None:
        draft.params[name] = value

    return read


def _tool_choice(draft: Draft, value: object) -> None:
    choice = an_object(value, "tool_choice")
    kind = choice.get("type")
    if kind == "tool":
        draft.params["tool_choice"] = {"type": "function", "name": choice.get("name")}
    elif isinstance(kind, str) and kind in _CHOICES:
        draft.params["tool_choice"] = _CHOICES[kind]
    else:
        raise UnreadableRequest(f"tool_choice has an unknown type {shown(kind)}")
    if choice.get("disable_parallel_tool_use") is True:
        draft.params["parallel_tool_calls"] = False


def _output_config(draft: Draft, value: object) -> None:
    for key, member in an_object(value, "output_config").items():
        if member is None:
            continue
        if key == "effort":
            draft.leave_out("output_config.effort")
        elif key == "format":
            _output_format(draft, member)
        else:
            raise UnreadableRequest(f"output_config has an unknown key {shown(key)}")


def _output_format(draft: Draft, value: object) -> None:
    given = an_object(value, "output_format")
    if given.get("type") != "json_schema":
        raise UnreadableRequest(f"output_format has an unknown type {shown(given.get('type'))}")
    form: dict[str, Any] = {"type": "json_schema", "name": "answer", "strict": True}
    draft.params["text"] = {"format": {**form, "schema": given.get("schema")}}


def _mcp_servers(draft: Draft, value: object) -> None:
    if value != []:
        raise UnreadableRequest("mcp_servers is not supported; the gateway calls no MCP server")
    draft.leave_out("mcp_servers")


_READERS: Final[Mapping[str, Callable[[Draft, object], None]]] = {
    "max_tokens": _same("max_output_tokens"),
    "stop_sequences": _same("stop"),
    "tool_choice": _tool_choice,
    "output_config": _output_config,
    "output_format": _output_format,
    "mcp_servers": _mcp_servers,
}
_READ: Final = frozenset(("messages", "model", "stream", "system", "tools", *_READERS))
