"""Chat messages as Responses items. Pure.

An assistant message becomes, in this order, a reasoning item, a message, and a function call for
each tool call. The writer of answers joins these into one message again. Reasoning is under
`reasoning_content` (vLLM, SGLang, Qwen), `reasoning` (OpenRouter) or in `thinking_blocks`
(LiteLLM).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_agent.gateway.dialects.reading import (
    Draft,
    UnreadableRequest,
    a_list,
    a_text,
    an_object,
    shown,
)
from gymmesh_agent.gateway.request import Json
from gymmesh_responses import dumps_clean

_KEYS: Final = frozenset(("role", "content", "name"))
_ASSISTANT_KEYS: Final = _KEYS | {
    "reasoning",
    "reasoning_content",
    "refusal",
    "thinking_blocks",
    "tool_calls",
}
_TOOL_KEYS: Final = _KEYS | {"tool_call_id"}


def read_messages(draft: Draft, messages: list[Any]) -> None:
    """Add the messages to the draft's items."""
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        given = an_object(message, place)
        role = given.get("role")
        read = _ROLES.get(role) if isinstance(role, str) else None
        if read is None:
            raise UnreadableRequest(f"{place} has an unknown role {shown(role)}")
        read(draft, given, place)


def _plain(draft: Draft, message: Json, place: str) -> None:
    _note(draft, message, _KEYS)
    content = _content(message.get("content"), f"{place}.content", "input_text")
    made = {"type": "message", "role": message["role"], "content": content}
    draft.items.append(_named(made, message))


def _assistant(draft: Draft, message: Json, place: str) -> None:
    _note(draft, message, _ASSISTANT_KEYS)
    thought = _reasoning(message, place)
    if thought:
        part = {"type": "reasoning_text", "text": thought}
        draft.items.append({"type": "reasoning", "summary": [], "content": [part]})
    parts = _said(message, place)
    calls = message.get("tool_calls")
    calls = [] if calls is None else a_list(calls, f"{place}.tool_calls")
    if parts or not (calls or thought):
        content = parts or [_output_text("")]
        made = {"type": "message", "role": "assistant", "content": content}
        draft.items.append(_named(made, message))
    for index, call in enumerate(calls):
        draft.items.append(_call(call, f"{place}.tool_calls[{index}]"))


def _tool(draft: Draft, message: Json, place: str) -> None:
    _note(draft, message, _TOOL_KEYS)
    call_id = a_text(message.get("tool_call_id"), f"{place}.tool_call_id")
    content = _content(message.get("content"), f"{place}.content", "input_text")
    draft.items.append({"type": "function_call_output", "call_id": call_id, "output": content})


_ROLES: Final[Mapping[str, Callable[[Draft, Json, str], None]]] = {
    "system": _plain,
    "developer": _plain,
    "user": _plain,
    "assistant": _assistant,
    "tool": _tool,
}


def _note(draft: Draft, message: Json, known: frozenset[str]) -> None:
    if any(value is not None for key, value in message.items() if key not in known):
        draft.leave_out("messages")


def _named(made: Json, message: Json) -> Json:
    if message.get("name") is not None:
        made["name"] = message["name"]
    return made


def _reasoning(message: Json, place: str) -> str:
    for key in ("reasoning_content", "reasoning"):
        if message.get(key) is not None:
            return a_text(message[key], f"{place}.{key}")
    blocks = message.get("thinking_blocks")
    if blocks is None:
        return ""
    given = a_list(blocks, f"{place}.thinking_blocks")
    texts = [one.get("thinking") if isinstance(one, dict) else None for one in given]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _said(message: Json, place: str) -> list[Json]:
    """The content of an assistant message: texts that are not empty, and a refusal."""
    content = message.get("content")
    parts: list[Json] = []
    if isinstance(content, str):
        parts = [_output_text(content)] if content else []
    elif content is not None:
        for index, part in enumerate(a_list(content, f"{place}.content")):
            parts.append(_part(part, f"{place}.content[{index}]", "output_text"))
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    return parts


def _output_text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def _call(call: object, place: str) -> Json:
    given = an_object(call, place)
    call_id = a_text(given.get("id"), f"{place}.id")
    if isinstance(given.get("custom"), dict):
        custom = given["custom"]
        return {
            "type": "custom_tool_call",
            "call_id": call_id,
            "name": a_text(custom.get("name"), f"{place}.custom.name"),
            "input": a_text(custom.get("input"), f"{place}.custom.input"),
        }
    function = an_object(given.get("function"), f"{place}.function")
    name = a_text(function.get("name"), f"{place}.function.name")
    return _function(call_id, name, function.get("arguments"))


def _function(call_id: str, name: str, arguments: object) -> Json:
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):  # some programs send them parsed
        arguments = dumps_clean(arguments).decode()
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def _content(value: object, place: str, text_type: str) -> str | list[Json]:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return [
        _part(part, f"{place}[{index}]", text_type)
        for index, part in enumerate(a_list(value, place))
    ]


def _part(part: object, place: str, text_type: str) -> Json:
    """A content part. A part of an unknown type is passed to the model service unchanged."""
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    given = an_object(part, place)
    kind = given.get("type")
    if kind == "text":
        text = a_text(given.get("text"), f"{place}.text")
        return (
            _output_text(text) if text_type == "output_text" else {"type": text_type, "text": text}
        )
    if kind == "image_url":
        return _image(given.get("image_url"), f"{place}.image_url")
    if kind == "file":
        return {"type": "input_file", **an_object(given.get("file"), f"{place}.file")}
    return given


def _image(image: object, place: str) -> Json:
    if isinstance(image, str):
        return {"type": "input_image", "image_url": image}
    given = an_object(image, place)
    made: Json = {"type": "input_image", "image_url": a_text(given.get("url"), f"{place}.url")}
    if given.get("detail") is not None:
        made["detail"] = given["detail"]
    return made
