"""Reads `POST /v1/responses` and `POST /v1/responses/input_tokens`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
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
from gymmesh_agent.gateway.dialects.responses.namespaces import ToolNamespaces
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.request import GatewayRequest, Json, ReplyOptions

#: What a request may hold that `params` lacks, and why that does no harm.
LEFT_OUT: Final[Mapping[str, str]] = {
    "background": "the default is false, and the gateway refuses true",
    "client_metadata": (
        "describes the program. The gateway reads this field only to find the session and the "
        "agent of the program"
    ),
    "max_tool_calls": (
        "limits the number of tool calls that the endpoint runs, but the gateway runs no tools"
    ),
    "metadata": "this field is only for the records of the endpoint",
    "prompt_cache_key": (
        "chooses a cache at the endpoint. The gateway reads this field only to find the session "
        "of the program"
    ),
    "prompt_cache_options": "chooses a cache at the endpoint",
    "prompt_cache_retention": "chooses a cache at the endpoint",
    "safety_identifier": "this field is only for the records of the endpoint",
    "service_tier": "chooses a price at the endpoint",
    "store": "the gateway records every call, and no program can fetch a recorded call",
    "stream_options": (
        "requests extra characters in a stream, which hide the length of tokens from network "
        "eavesdroppers"
    ),
    "user": "this field is only for the records of the endpoint",
    # Parts of parameters and items.
    "include": (
        "requests data of tools that the endpoint runs, or data that the gateway always returns"
    ),
    "reasoning.summary": (
        "requests a summary of the reasoning, but the gateway returns the policy's reasoning "
        "unchanged"
    ),
    "reasoning.generate_summary": (
        "requests a summary of the reasoning, but the gateway returns the policy's reasoning "
        "unchanged"
    ),
    "input": (
        "if the API does not define a key of an item, the key is a note of the program, not for "
        "the policy"
    ),
}
_REFUSED: Final[Mapping[str, str]] = {
    "conversation": "send the whole conversation as input",
    "previous_response_id": "send the whole conversation as input",
    "prompt": "the gateway has no stored prompts",
}
_READ: Final = frozenset(
    ("include", "input", "instructions", "model", "reasoning", "stream", "tools", *_REFUSED)
)
_LOGPROBS: Final = "message.output_text.logprobs"
#: The keys that the API defines for each kind of item whose every key is known.
_ITEM_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset(("type", "id", "role", "status", "content", "name", "phase")),
    "function_call": frozenset(
        ("type", "id", "call_id", "name", "arguments", "status", "namespace")
    ),
    "function_call_output": frozenset(("type", "id", "call_id", "output", "status")),
    "reasoning": frozenset(("type", "id", "summary", "content", "encrypted_content", "status")),
}


@total
def read_responses(
    route: GatewayRoute, headers: Mapping[str, str], raw: bytes, seen: SeenRequests
) -> GatewayRequest:
    """Read a request; see `Dialect.read`."""
    body = body_of(raw)
    _refuse(body)
    draft = Draft(LEFT_OUT, seen)
    names = ToolNamespaces()
    draft.tools = names.flattened(tools_in(body))
    _read_input(draft, body.get("input"), names)
    _read_include(draft, body.get("include"))
    _read_reasoning(draft, body.get("reasoning"))
    draft.carry(body, _READ, responses=True)
    metadata = body.get("client_metadata")
    return draft.request(
        route,
        model=body.get("model"),
        stream=body.get("stream"),
        instructions=_instructions(body.get("instructions")),
        hints=read_hints(
            headers,
            metadata=metadata if isinstance(metadata, dict) else None,
            session=body.get("prompt_cache_key"),
        ),
        reply=ReplyOptions(),
        tool_names=names.names,
    )


def _refuse(body: Json) -> None:
    for name, advice in _REFUSED.items():
        if body.get(name) is not None:
            raise UnreadableRequest(f"{name} is not supported; {advice}")
    if body.get("background"):
        raise UnreadableRequest(
            "'background' is not supported; remove 'background' from the request"
        )


def _instructions(value: object) -> str:
    if value is None:
        return ""
    text = a_text(value, "instructions")
    # An unpaired surrogate has no UTF-8 form.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _read_input(draft: Draft, value: object, names: ToolNamespaces) -> None:
    if value is None:
        return
    if isinstance(value, str):
        draft.items.append({"type": "message", "role": "user", "content": value})
        return
    for index, item in enumerate(a_list(value, "input")):
        draft.items.append(_item(draft, an_object(item, f"input[{index}]"), names))


def _item(draft: Draft, item: Json, names: ToolNamespaces) -> Json:
    kind = item.get("type", "message" if "role" in item else None)
    known = _ITEM_KEYS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return item
    kept = {key: value for key, value in item.items() if key in known and value is not None}
    if any(value is not None for key, value in item.items() if key not in known):
        draft.leave_out("input")
    if kind == "function_call" and isinstance(kept.get("namespace"), str):
        kept["name"] = names.flat(kept.pop("namespace"), kept.get("name"))
    return kept


def _read_include(draft: Draft, value: object) -> None:
    if value is None:
        return
    for wanted in a_list(value, "include"):
        if wanted == _LOGPROBS:
            draft.params["include"] = [_LOGPROBS]
        else:
            draft.leave_out("include")


def _read_reasoning(draft: Draft, value: object) -> None:
    if value is None:
        return
    kept: dict[str, Any] = {}
    for key, member in an_object(value, "reasoning").items():
        name = f"reasoning.{key}"
        if member is None:
            continue
        if name in LEFT_OUT:
            draft.leave_out(name)
        elif len(key) > 100:
            raise UnreadableRequest(f"reasoning has an unknown key {shown(key)}")
        else:
            kept[key] = member
    if kept:
        draft.params["reasoning"] = kept
