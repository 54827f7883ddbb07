"""Responses parameters as the body of a Chat Completions request.

Each parameter is handled in one of these ways:

- translated: input, instructions, tools, tool_choice, max_output_tokens, text (format and
  verbosity), reasoning.effort, top_logprobs;
- not sent, and echoed in the response: metadata, store (the endpoint keeps nothing), max_tool_calls
  (counts only built-in tools, which are rejected);
- dropped because it is the default: null anywhere, background and stream false, truncation
  "disabled";
- rejected with PARAMETER_UNSUPPORTED: everything else that Responses defines and Chat lacks;
- sent unchanged: parameters with the same name in both APIs (temperature, top_p, user, …), and
  parameters that neither defines (an endpoint's own, such as top_k), which the endpoint may reject.

Formats: OpenAI's API reference for `POST /responses` and `POST /chat/completions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.convert.messages import (
    DEFAULT,
    ChatOptions,
    messages_from_input,
    messages_from_items,
)
from gymmesh_model.convert.parameters import LACKING, OFF, asked, function_tools
from gymmesh_model.errors import unsupported
from gymmesh_runtime.errors import field_invalid

Json = dict[str, Any]

_OFF: Final[Mapping[str, object]] = {**OFF, "n": 1}
_LOGPROBS: Final = "message.output_text.logprobs"
_FORMAT_KEYS: Final = ("name", "description", "schema", "strict")


def to_chat(
    params: Mapping[str, Any],
    options: ChatOptions = DEFAULT,
    *,
    seed: int | None = None,
    items: Sequence[pb.Item] | None = None,
    shared: Json | None = None,
) -> Json:
    """The chat request for `params`.

    params: the body of a Responses request, parsed; not changed. seed: used if the parameters have
    no seed. items: the input, in place of that of `params`. shared: the result of
    `settings_to_chat` for them, if known; not changed. Raises MeshError PARAMETER_UNSUPPORTED or
    FIELD_INVALID.
    """
    instructions, tools = params.get("instructions"), params.get("tools")
    if items is None:
        messages = messages_from_input(params.get("input"), instructions, options, tools)
    else:
        messages = messages_from_items(items, instructions, options, tools)
    if shared is None:
        shared = settings_to_chat(params, options)
    body: Json = {"messages": messages, **shared}
    if seed is not None:
        body.setdefault("seed", seed)
    return body


def settings_to_chat(params: Mapping[str, Any], options: ChatOptions = DEFAULT) -> Json:
    """The chat request without its messages. Raises MeshError PARAMETER_UNSUPPORTED or
    FIELD_INVALID.

    params: as for `to_chat`; their input is ignored.
    """
    body: Json = {}
    rest: Json = {}
    for key, value in asked(params, "Chat Completions", LACKING, _OFF):
        if key in _WRITERS:
            body.update(_WRITERS[key](value, options))
        else:
            rest[key] = value
    for key, value in rest.items():
        if key in body or key == "messages":
            raise unsupported(key, "another parameter already sets this key of the chat request")
        body[key] = value
    return _without_idle_tool_keys(body)


def _tools(value: object, options: ChatOptions) -> Json:
    tools = [_tool(tool) for tool, _ in function_tools(value)]
    # Endpoints refuse an empty list, and without one no tool is offered either.
    return {"tools": tools} if tools else {}


def _tool(tool: Mapping[str, Any]) -> Json:
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


def _tool_choice(value: object, options: ChatOptions) -> Json:
    if isinstance(value, str):
        return {"tool_choice": value}
    if isinstance(value, Mapping):
        if value.get("type") == "function" and isinstance(value.get("name"), str):
            return {"tool_choice": _named(value)}
        if value.get("type") == "allowed_tools" and isinstance(value.get("tools"), list):
            tools = value["tools"]
            if any(not isinstance(one, Mapping) or one.get("type") != "function" for one in tools):
                raise unsupported("tool_choice.tools", "only function tools are supported")
            allowed = {"mode": value.get("mode", "auto"), "tools": [_named(one) for one in tools]}
            return {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
    raise unsupported(
        "tool_choice",
        "only 'auto', 'none', 'required', a named function and allowed tools are supported",
    )


def _named(tool: Mapping[str, Any]) -> Json:
    return {"type": "function", "function": {"name": tool.get("name")}}


def _text(value: object, options: ChatOptions) -> Json:
    if not isinstance(value, Mapping):
        raise field_invalid("params.text", "must be an object")
    body: Json = {}
    for key, member in value.items():
        if member is None:
            continue
        if key == "verbosity":
            body["verbosity"] = member
        elif key == "format":
            body.update(_format(member))
        else:
            raise unsupported(f"text.{key}", "Chat Completions has no such parameter")
    return body


def _format(value: object) -> Json:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if kind != "json_schema" or not isinstance(value, Mapping):
        raise unsupported("text.format", f"Chat Completions has no text format {kind!r}")
    for key, member in value.items():
        if key not in (*_FORMAT_KEYS, "type") and member is not None:
            raise unsupported(
                f"text.format.{key}", "Chat Completions has no field for this parameter"
            )
    schema = {key: value[key] for key in _FORMAT_KEYS if value.get(key) is not None}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _reasoning(value: object, options: ChatOptions) -> Json:
    if not isinstance(value, Mapping):
        raise field_invalid("params.reasoning", "must be an object")
    for key, member in value.items():
        if key != "effort" and member is not None:
            raise unsupported(f"reasoning.{key}", "only 'reasoning.effort' can be set")
    effort = value.get("effort")
    return {} if effort is None else {"reasoning_effort": effort}


def _include(value: object, options: ChatOptions) -> Json:
    if not isinstance(value, list):
        raise field_invalid("params.include", "must be a list")
    for index, wanted in enumerate(value):
        if wanted != _LOGPROBS:
            raise unsupported(f"include[{index}]", f"Chat Completions does not return '{wanted}'")
    return {"logprobs": True} if value else {}


def _without_idle_tool_keys(body: Json) -> Json:
    """Removes keys about tools from a request without tools: endpoints refuse these keys, and
    without tools the keys have no effect.
    """
    if "tools" in body:
        return body
    body.pop("parallel_tool_calls", None)
    if body.pop("tool_choice", "auto") not in ("auto", "none"):
        raise field_invalid("params.tool_choice", "requires a tool call, but no tools are given")
    return body


_WRITERS: Final[Mapping[str, Callable[[object, ChatOptions], Json]]] = {
    "tools": _tools,
    "tool_choice": _tool_choice,
    "max_output_tokens": lambda value, options: {options.max_tokens_key: value},
    "text": _text,
    "reasoning": _reasoning,
    "include": _include,
    "top_logprobs": lambda value, _: {"logprobs": True, "top_logprobs": value} if value else {},
}
