"""Reads Gemini's `generateContent`, `streamGenerateContent` and `countTokens`: parameters and
tools; contents.py reads the contents. Pure.

The API's JSON is protobuf's, so every key may be in camel case or in snake case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.gemini.contents import read_contents, read_system
from gymmesh_agent.gateway.dialects.gemini.keys import camel_keys
from gymmesh_agent.gateway.dialects.gemini.schema import json_schema
from gymmesh_agent.gateway.dialects.hints import read_hints
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
from gymmesh_agent.gateway.request import GatewayRequest, Json, ReplyOptions, RequestKind

#: What a request may hold that `params` lacks, and why that does no harm.
LEFT_OUT: Final[Mapping[str, str]] = {
    "labels": "this field is only for the records of the endpoint",
    "safetySettings": "chooses filters of the endpoint, but the gateway has no filters",
    "serviceTier": "chooses a price at the endpoint",
    "store": "the gateway records every call, and no program can fetch a recorded call",
    # Parts of generationConfig and of tools.
    "audioTimestamp": (
        "sets timestamps in audio. The model service decides whether audio is accepted"
    ),
    "candidateCount": "a call returns one answer, and the gateway refuses a number above 1",
    "enableAffectiveDialog": "controls spoken answers, but every answer is text",
    "mediaResolution": (
        "sets the resolution of images. The model service decides the resolution instead"
    ),
    "responseMimeType": "every answer is text",
    "responseModalities": "every answer is text, and the gateway refuses any value other than text",
    "thinkingConfig": (
        "the parameters of the run decide whether the policy reasons. This field only decides "
        "whether the gateway sends the reasoning to the program"
    ),
    "tools": (
        "some keys of a tool describe the tool's answer, or say whether the endpoint waits for "
        "the answer. The policy does not need these keys"
    ),
}
_READ: Final = frozenset(
    (
        "contents",
        "generationConfig",
        "model",
        "stream",
        "systemInstruction",
        "toolConfig",
        "tools",
        "cachedContent",
    )
)
_MODES: Final = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}
_NOTES: Final = ("response", "responseJsonSchema", "behavior")


@total
def read_gemini(
    route: GatewayRoute, headers: Mapping[str, str], raw: bytes, seen: SeenRequests
) -> GatewayRequest:
    """Read a request; see `Dialect.read`."""
    body = camel_keys(body_of(raw))
    if route.kind is RequestKind.COUNT_TOKENS and body.get("generateContentRequest") is not None:
        body = camel_keys(an_object(body["generateContentRequest"], "generateContentRequest"))
    if body.get("cachedContent") is not None:
        raise UnreadableRequest(
            "cachedContent is not supported; send the whole conversation as contents"
        )
    draft = Draft(LEFT_OUT, seen)
    read_system(draft, body.get("systemInstruction"))
    read_contents(draft, _contents(body.get("contents")))
    for index, tool in enumerate(tools_in(body)):
        draft.tools += _tools(draft, camel_keys(an_object(tool, f"tools[{index}]")), index)
    shows = _read_config(draft, body.get("generationConfig"))
    _read_tool_config(draft, body.get("toolConfig"))
    draft.carry(body, _READ)
    return draft.request(
        route,
        model=None,
        stream=None,
        hints=read_hints(headers),
        reply=ReplyOptions(reasoning=shows),
    )


def _contents(value: object) -> list[Any]:
    """The contents; a single content or a text becomes a list."""
    if isinstance(value, str):
        value = {"role": "user", "parts": [{"text": value}]}
    return a_list([value] if isinstance(value, dict) else value, "contents")


def _tools(draft: Draft, tool: Json, index: int) -> list[Json]:
    """The functions that a tool declares; its other parts are unchanged."""
    place = f"tools[{index}].functionDeclarations"
    rest = {key: value for key, value in tool.items() if value is not None}
    declared = rest.pop("functionDeclarations", [])
    made = [
        _function(draft, camel_keys(an_object(one, f"{place}[{number}]")), f"{place}[{number}]")
        for number, one in enumerate(a_list(declared, place))
    ]
    return [*made, rest] if rest else made


def _function(draft: Draft, declaration: Json, place: str) -> Json:
    made: Json = {"type": "function", "name": a_text(declaration.get("name"), f"{place}.name")}
    for key, value in declaration.items():
        if value is None or key == "name":
            continue
        if key == "parametersJsonSchema":
            made["parameters"] = value
        elif key == "parameters":
            made.setdefault("parameters", json_schema(value, f"{place}.parameters"))
        elif key in _NOTES:
            draft.leave_out("tools")
        else:
            made[key] = value
    return made


def _read_tool_config(draft: Draft, value: object) -> None:
    if value is None:
        return
    config = camel_keys(an_object(value, "toolConfig"))
    calling = config.get("functionCallingConfig")
    for key, member in config.items():
        if key != "functionCallingConfig" and member is not None:
            draft.keep(f"toolConfig.{key}", member)
    if calling is None:
        return
    given = camel_keys(an_object(calling, "toolConfig.functionCallingConfig"))
    mode = given.get("mode") or "AUTO"
    choice = _MODES.get(mode) if isinstance(mode, str) else None
    if mode == "MODE_UNSPECIFIED":
        choice = "auto"
    if choice is None:
        raise UnreadableRequest(
            f"toolConfig.functionCallingConfig has an unknown mode {shown(mode)}"
        )
    names = given.get("allowedFunctionNames")
    if not names:
        draft.params["tool_choice"] = choice
        return
    allowed = [
        {"type": "function", "name": name}
        for name in a_list(names, "toolConfig.functionCallingConfig.allowedFunctionNames")
    ]
    alone = choice == "required" and len(allowed) == 1
    several = {"type": "allowed_tools", "mode": choice, "tools": allowed}
    draft.params["tool_choice"] = allowed[0] if alone else several


def _read_config(draft: Draft, value: object) -> bool:
    """Read generationConfig; returns whether the reasoning must be shown."""
    config = camel_keys({} if value is None else an_object(value, "generationConfig"))
    thinking = config.get("thinkingConfig")
    thinking = camel_keys(thinking) if isinstance(thinking, dict) else {}
    for key, member in config.items():
        if member is None:
            continue
        if key in _CONFIG:
            _CONFIG[key](draft, member)
        elif key in LEFT_OUT:
            draft.leave_out(key)
        else:
            draft.keep(key, member)
    return thinking.get("includeThoughts") is True


def _same(name: str) -> Callable[[Draft, object], None]:
    """Reads a parameter that has this name in Responses or at the model service."""

    def read(draft: Draft, value: object) -> None:
        draft.params[name] = value

    return read


def _candidates(draft: Draft, value: object) -> None:
    if value != 1 or isinstance(value, bool):
        raise UnreadableRequest("candidateCount must be 1; send one request for each answer")
    draft.leave_out("candidateCount")


def _modalities(draft: Draft, value: object) -> None:
    if value not in (["TEXT"], ["text"]):
        raise UnreadableRequest("responseModalities must contain only 'TEXT'")
    draft.leave_out("responseModalities")


def _mime_type(draft: Draft, value: object) -> None:
    if value == "application/json":
        draft.params.setdefault("text", {"format": {"type": "json_object"}})
    elif value == "text/plain":
        draft.leave_out("responseMimeType")
    else:
        raise UnreadableRequest(f"responseMimeType {shown(value)} is not supported")


def _schema(draft: Draft, schema: object) -> None:
    form = {"type": "json_schema", "name": "answer", "strict": True, "schema": schema}
    draft.params["text"] = {"format": form}


def _response_schema(draft: Draft, value: object) -> None:
    _schema(draft, json_schema(value, "generationConfig.responseSchema"))


def _logprobs(draft: Draft, value: object) -> None:
    if value is True:
        draft.params["include"] = ["message.output_text.logprobs"]


_CONFIG: Final[Mapping[str, Callable[[Draft, object], None]]] = {
    "temperature": _same("temperature"),
    "topP": _same("top_p"),
    "topK": _same("top_k"),
    "maxOutputTokens": _same("max_output_tokens"),
    "stopSequences": _same("stop"),
    "seed": _same("seed"),
    "presencePenalty": _same("presence_penalty"),
    "frequencyPenalty": _same("frequency_penalty"),
    "logprobs": _same("top_logprobs"),
    "responseLogprobs": _logprobs,
    "candidateCount": _candidates,
    "responseModalities": _modalities,
    "responseMimeType": _mime_type,
    "responseSchema": _response_schema,
    "responseJsonSchema": _schema,
}
