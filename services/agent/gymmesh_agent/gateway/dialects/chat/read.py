"""Reads `POST /v1/chat/completions`: parameters and tools; messages.py reads the messages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.chat.messages import read_messages
from gymmesh_agent.gateway.dialects.hints import read_hints
from gymmesh_agent.gateway.dialects.reading import (
    Draft,
    UnreadableRequest,
    a_list,
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
    "metadata": "this field is only for the records of the endpoint",
    "modalities": "every answer is text, and the gateway refuses any value other than text",
    "n": "a call returns one answer, and the gateway refuses a number above 1",
    "prediction": "changes the speed of the endpoint, but not the answer",
    "prompt_cache_key": (
        "chooses a cache at the endpoint. The gateway reads this field only to find the session "
        "of the program"
    ),
    "prompt_cache_retention": "chooses a cache at the endpoint",
    "safety_identifier": "this field is only for the records of the endpoint",
    "service_tier": "chooses a price at the endpoint",
    "store": "the gateway records every call, and no program can fetch a recorded call",
    "stream_options": (
        "sets the form of the stream, and the gateway uses this form. The policy does not need "
        "this field"
    ),
    "user": "this field is only for the records of the endpoint",
    # Parts of messages.
    "messages": (
        "if the API does not define a key of a message, the key is a note of the program, not "
        "for the policy"
    ),
    "reasoning.summary": (
        "requests a summary of the reasoning, but the gateway returns the policy's reasoning "
        "unchanged"
    ),
    "reasoning.exclude": (
        "asks the gateway to hide the reasoning, but the gateway returns the policy's reasoning "
        "unchanged"
    ),
    "reasoning.enabled": "the parameters of the run decide whether the policy reasons",
}
_FORMAT_KEYS: Final = ("name", "description", "schema", "strict")


@total
def read_chat(
    route: GatewayRoute, headers: Mapping[str, str], raw: bytes, seen: SeenRequests
) -> GatewayRequest:
    """Read a request; see `Dialect.read`."""
    body = body_of(raw)
    draft = Draft(LEFT_OUT, seen)
    read_messages(draft, a_list(body.get("messages"), "messages"))
    draft.tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools_in(body))]
    for key, read in _READERS.items():
        if body.get(key) is not None:
            read(draft, body[key])
    draft.carry(body, _READ)
    options = body.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    return draft.request(
        route,
        model=body.get("model"),
        stream=body.get("stream"),
        hints=read_hints(headers, session=body.get("prompt_cache_key")),
        reply=ReplyOptions(stream_usage=with_usage),
    )


def _tool(tool: object, place: str) -> Json:
    """A tool in the flat form of Responses: `{"type": T, T: {…}}` becomes `{"type": T, …}`."""
    given = an_object(tool, place)
    kind = given.get("type")
    if kind not in ("function", "custom"):
        return given
    made = {"type": kind, **_said(an_object(given.get(kind), f"{place}.{kind}"))}
    form = made.get("format")
    if kind == "custom" and isinstance(form, dict) and isinstance(form.get("grammar"), dict):
        made["format"] = {"type": form.get("type"), **form["grammar"]}
    return made


def _said(value: Json) -> Json:
    """The object without its null values."""
    return {key: member for key, member in value.items() if member is not None}


def _tool_choice(draft: Draft, value: object) -> None:
    draft.params["tool_choice"] = _choice(value)


def _choice(value: object) -> Any:
    if isinstance(value, str):
        return value
    choice = an_object(value, "tool_choice")
    kind = choice.get("type")
    if not isinstance(kind, str):
        raise UnreadableRequest("tool_choice must have a 'type'")
    inner = choice.get(kind)
    if kind in ("function", "custom") and isinstance(inner, dict):
        return {"type": kind, "name": inner.get("name")}
    if kind == "allowed_tools" and isinstance(inner, dict):
        tools = a_list(inner.get("tools"), "tool_choice.allowed_tools.tools")
        allowed = [_choice(tool) for tool in tools]
        return {"type": kind, "mode": inner.get("mode", "auto"), "tools": allowed}
    return choice


def _functions(draft: Draft, value: object) -> None:
    raise UnreadableRequest(
        "'functions' and 'function_call' are not supported; use 'tools' and 'tool_choice'"
    )


def _max_tokens(draft: Draft, value: object) -> None:
    draft.params["max_output_tokens"] = value


def _response_format(draft: Draft, value: object) -> None:
    given = an_object(value, "response_format")
    kind = given.get("type")
    if kind == "json_schema":
        schema = an_object(given.get("json_schema"), "response_format.json_schema")
        made = {key: schema[key] for key in _FORMAT_KEYS if schema.get(key) is not None}
        _text(draft)["format"] = {"type": kind, **made}
    elif kind == "json_object":
        _text(draft)["format"] = {"type": kind}
    elif kind != "text":
        raise UnreadableRequest(f"response_format has an unknown type {shown(kind)}")


def _verbosity(draft: Draft, value: object) -> None:
    _text(draft)["verbosity"] = value


def _text(draft: Draft) -> Json:
    made: Json = draft.params.setdefault("text", {})
    return made


def _effort(draft: Draft, value: object) -> None:
    _reasoning_of(draft)["effort"] = value


def _reasoning(draft: Draft, value: object) -> None:
    """OpenRouter's reasoning object, which some programs send to any endpoint."""
    for key, member in an_object(value, "reasoning").items():
        name = f"reasoning.{key}"
        if name in LEFT_OUT:
            draft.leave_out(name)
        elif member is not None:
            _reasoning_of(draft)[key] = member


def _reasoning_of(draft: Draft) -> Json:
    made: Json = draft.params.setdefault("reasoning", {})
    return made


def _logprobs(draft: Draft, value: object) -> None:
    if value:
        draft.params["include"] = ["message.output_text.logprobs"]


def _one_answer(draft: Draft, value: object) -> None:
    if value != 1 or isinstance(value, bool):
        raise UnreadableRequest("'n' must be 1; send one request for each answer")
    draft.leave_out("n")


def _modalities(draft: Draft, value: object) -> None:
    if value != ["text"]:
        raise UnreadableRequest("'modalities' must contain only 'text'")
    draft.leave_out("modalities")


#: In this order: max_completion_tokens wins over its older name.
_READERS: Final[Mapping[str, Callable[[Draft, object], None]]] = {
    "max_tokens": _max_tokens,
    "max_completion_tokens": _max_tokens,
    "functions": _functions,
    "function_call": _functions,
    "tool_choice": _tool_choice,
    "response_format": _response_format,
    "verbosity": _verbosity,
    "reasoning": _reasoning,
    "reasoning_effort": _effort,
    "logprobs": _logprobs,
    "n": _one_answer,
    "modalities": _modalities,
}
_READ: Final = frozenset(("messages", "model", "stream", "tools", *_READERS))
