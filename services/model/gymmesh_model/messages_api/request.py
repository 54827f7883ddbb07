"""Responses parameters as the body of a request for Anthropic's Messages API.

Each parameter is handled in one of these ways:

- translated: input, instructions, tools, tool_choice, parallel_tool_calls, max_output_tokens,
  reasoning.effort, text.format (a JSON schema);
- not sent, and echoed in the response: metadata, store, max_tool_calls;
- dropped because it is the default: null anywhere, background and stream false, truncation
  "disabled";
- rejected with PARAMETER_UNSUPPORTED: everything else that Responses defines and Messages lacks;
- sent unchanged: parameters with the same name in both APIs (temperature, top_p, service_tier), and
  parameters that Responses does not define (top_k, stop_sequences, thinking …), which the endpoint
  may reject.

The conversation alternates between user and assistant. The answer of one model call (reasoning,
text, tool calls) is one assistant message. The items between two answers are one user message, tool
results first. System text at the beginning is `system`; later system text is part of a user
message. A reasoning item has a thinking block's signature in `encrypted_content`, and is sent back
unchanged; an item without content is a redacted block.

Format: Anthropic's API reference, version 2023-06-01.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from gymmesh_model.convert import (
    LACKING,
    asked,
    function_tools,
    sent_arguments,
    sent_name,
    text_of_part,
)
from gymmesh_model.errors import unsupported
from gymmesh_responses import data_of_url, loads
from gymmesh_runtime.errors import field_invalid

Json = dict[str, Any]

_API: Final = "Anthropic's Messages API"
_LACKING: Final = LACKING.union(
    (
        *("include", "top_logprobs", "user", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "frequency_penalty", "presence_penalty", "seed"),
    )
)
_TEXT_PARTS: Final = ("input_text", "output_text", "text", "summary_text")
_SYSTEM: Final = ("system", "developer")


class MessagesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `anthropic` model.

    max_tokens: the limit of an answer if a call sets no `max_output_tokens`; the API requires one.
    unsigned_reasoning: what to do with reasoning that another model wrote, which the API does not
        accept: `refuse` the call, or `omit` the reasoning from the request.
    """

    max_tokens: int = 16384
    unsigned_reasoning: Literal["refuse", "omit"] = "refuse"


def to_messages(params: Mapping[str, Any], options: MessagesOptions) -> Json:
    """The body that asks for what `params` ask for; `params` are not changed.

    Raises MeshError PARAMETER_UNSUPPORTED, naming the place, or FIELD_INVALID.
    """
    body: Json = {"max_tokens": options.max_tokens}
    body.update(_conversation(params, options))
    for key, value in asked(params, _API, _LACKING):
        if key in _WRITERS:
            _merge(body, _WRITERS[key](value))
        else:
            body[key] = value
    return _with_parallel(body)


def _merge(body: Json, made: Json) -> None:
    for key, value in made.items():
        if isinstance(value, dict) and isinstance(body.get(key), dict):
            body[key] = {**body[key], **value}
        else:
            body[key] = value


def _with_parallel(body: Json) -> Json:
    """Where parallel calls are refused, the choice of tools says so; without tools neither is."""
    parallel = body.pop("parallel_tool_calls", True)
    if "tools" not in body:
        choice = body.pop("tool_choice", {"type": "auto"})
        if choice["type"] not in ("auto", "none"):
            raise field_invalid(
                "params.tool_choice", "requires a tool call, but no tools are given"
            )
    elif parallel is False:
        choice = body.get("tool_choice", {"type": "auto"})
        if choice["type"] != "none":
            body["tool_choice"] = {**choice, "disable_parallel_tool_use": True}
    return body


def _tools(value: object) -> Json:
    tools = [_tool(tool) for tool, _ in function_tools(value)]
    return {"tools": tools} if tools else {}


def _tool(tool: Mapping[str, Any]) -> Json:
    made: Json = {
        "name": tool["name"],
        "input_schema": tool.get("parameters") or {"type": "object", "properties": {}},
    }
    for key, member in tool.items():
        if key in ("type", "name", "parameters") or member is None:
            continue
        if key == "strict" and member is False:
            continue
        made[key] = member
    return made


def _tool_choice(value: object) -> Json:
    named = {"auto": "auto", "required": "any", "none": "none"}
    if isinstance(value, str) and value in named:
        return {"tool_choice": {"type": named[value]}}
    if isinstance(value, Mapping) and value.get("type") == "function":
        return {"tool_choice": {"type": "tool", "name": value.get("name")}}
    raise unsupported(
        "tool_choice", "only 'auto', 'required', 'none' and a named function are supported"
    )


def _reasoning(value: object) -> Json:
    if not isinstance(value, Mapping):
        raise field_invalid("params.reasoning", "must be an object")
    for key, member in value.items():
        if key != "effort" and member is not None:
            raise unsupported(f"reasoning.{key}", "only 'reasoning.effort' can be set")
    effort = value.get("effort")
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"output_config": {"effort": effort}}


def _text(value: object) -> Json:
    if not isinstance(value, Mapping):
        raise field_invalid("params.text", "must be an object")
    body: Json = {}
    for key, member in value.items():
        if member is None:
            continue
        if key != "format":
            raise unsupported(f"text.{key}", f"{_API} has no such parameter")
        kind = member.get("type") if isinstance(member, Mapping) else None
        if kind == "json_schema":
            schema = {"type": "json_schema", "schema": member.get("schema")}
            body = {"output_config": {"format": schema}}
        elif kind != "text":
            raise unsupported("text.format", f"{_API} has no text format {kind!r}")
    return body


_WRITERS: Final[Mapping[str, Callable[[object], Json]]] = {
    "tools": _tools,
    "tool_choice": _tool_choice,
    "max_output_tokens": lambda value: {"max_tokens": value},
    "reasoning": _reasoning,
    "text": _text,
}


def _conversation(params: Mapping[str, Any], options: MessagesOptions) -> Json:
    """`system` and `messages` of the body."""
    instructions, value = params.get("instructions"), params.get("input")
    writer = _MessagesWriter(options, params.get("tools"))
    if isinstance(instructions, str):
        writer.system.append({"type": "text", "text": instructions})
    elif instructions is not None:
        raise field_invalid("params.instructions", "must be text")
    if isinstance(value, str):
        writer.say("user", [{"type": "text", "text": value}])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise field_invalid(f"params.input[{index}]", "must be an object")
            writer.add(item, f"input[{index}]")
    else:
        raise field_invalid("params.input", "must be text or a list of items")
    body: Json = {"messages": writer.messages}
    if system := [block for block in writer.system if block["text"]]:
        body["system"] = system
    return body


class _MessagesWriter:
    """Puts items into messages that alternate between user and assistant."""

    def __init__(self, options: MessagesOptions, tools: object) -> None:
        self.system: list[Json] = []
        self.messages: list[Json] = []
        self._options = options
        self._tools = tools

    def say(self, role: str, blocks: list[Json]) -> None:
        """Add blocks of a role, to its message where it spoke last. Empty text is left out: the
        API refuses it.
        """
        blocks = [block for block in blocks if block["type"] != "text" or block["text"]]
        if not blocks:
            return
        if self.messages and self.messages[-1]["role"] == role:
            content = self.messages[-1]["content"]
        else:
            content = []
            self.messages.append({"role": role, "content": content})
        if blocks[0]["type"] == "tool_result":
            # Results come before all else of their message.
            place = sum(block["type"] == "tool_result" for block in content)
            content[place:place] = blocks
        else:
            content.extend(blocks)

    def add(self, item: Mapping[str, Any], place: str) -> None:
        """Add one item of the input."""
        kind = item.get("type", "message")
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind == "function_call":
            self._call(item, place)
        elif kind == "function_call_output":
            self._output(item, place)
        else:
            raise unsupported(f"{place}.type", f"{_API} has no item of type '{kind}'")

    def _message(self, item: Mapping[str, Any], place: str) -> None:
        role = item.get("role")
        blocks = _blocks(item.get("content"), f"{place}.content")
        if role in _SYSTEM:
            if any(block["type"] != "text" for block in blocks):
                raise unsupported(f"{place}.content", "a system message may only have text")
            if self.messages:
                self.say("user", blocks)
            else:
                self.system += blocks
        elif role in ("user", "assistant"):
            self.say(role, blocks)
        else:
            raise unsupported(f"{place}.role", f"{_API} has no role {role!r}")

    def _reasoning(self, item: Mapping[str, Any], place: str) -> None:
        signature, content = item.get("encrypted_content"), item.get("content")
        if isinstance(signature, str):
            if not content:
                self.say("assistant", [{"type": "redacted_thinking", "data": signature}])
                return
            thinking = "".join(
                block["text"] for block in _blocks(content, f"{place}.content", reasoning=True)
            )
            block = {"type": "thinking", "thinking": thinking, "signature": signature}
            self.say("assistant", [block])
        elif self._options.unsigned_reasoning == "refuse":
            raise unsupported(
                place,
                "the endpoint refuses reasoning without a signature; set the option "
                "'unsigned_reasoning' to 'omit' to send the conversation without this reasoning",
            )

    def _call(self, item: Mapping[str, Any], place: str) -> None:
        call_id, name, written = (item.get(key) for key in ("call_id", "name", "arguments"))
        if not isinstance(call_id, str) or not isinstance(name, str):
            raise field_invalid(
                f"params.{place}", "needs the keys 'call_id' and 'name' with strings"
            )
        arguments = sent_arguments(written if isinstance(written, str) else "")
        block = {
            "type": "tool_use",
            "id": _wire_id(call_id),
            "name": sent_name(name, self._tools),
            "input": loads(arguments.encode()),
        }
        self.say("assistant", [block])

    def _output(self, item: Mapping[str, Any], place: str) -> None:
        call_id, output = item.get("call_id"), item.get("output")
        if not isinstance(call_id, str):
            raise field_invalid(f"params.{place}.call_id", "must be text")
        blocks = [block for block in _blocks(output, f"{place}.output") if block.get("text", "x")]
        block: Json = {"type": "tool_result", "tool_use_id": _wire_id(call_id)}
        if blocks:
            block["content"] = blocks
        self.say("user", [block])


def _blocks(content: object, place: str, reasoning: bool = False) -> list[Json]:
    """Content blocks of text, or of Responses' parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise field_invalid(f"params.{place}", "must be text or a list of parts")
    return [_block(part, f"{place}[{index}]", reasoning) for index, part in enumerate(content)]


def _block(part: object, place: str, reasoning: bool) -> Json:
    if not isinstance(part, Mapping):
        raise field_invalid(f"params.{place}", "must be an object")
    kind = part.get("type")
    if kind in _TEXT_PARTS or (reasoning and kind == "reasoning_text"):
        return {"type": "text", "text": text_of_part(part, "text", place)}
    if kind == "refusal":
        return {"type": "text", "text": text_of_part(part, "refusal", place)}
    if kind == "input_image":
        return {"type": "image", "source": _source(part.get("image_url"), f"{place}.image_url")}
    if kind == "input_file" and part.get("file_data") is not None:
        made: Json = {
            "type": "document",
            "source": _source(part.get("file_data"), f"{place}.file_data"),
        }
        if part.get("filename") is not None:
            made["title"] = part["filename"]
        return made
    raise unsupported(f"{place}.type", f"{_API} has no content part of type '{kind}'")


def _source(url: object, place: str) -> Json:
    if not isinstance(url, str):
        raise unsupported(place, "an image or file needs a URL")
    found = data_of_url(url)
    if found is not None:
        return {"type": "base64", "media_type": found[0], "data": found[1]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    raise unsupported(place, "must be a data URL in base64, or an http or https URL")


def _wire_id(call_id: str) -> str:
    """The id of a call as the API accepts it; equal ids stay equal."""
    if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id):
        return call_id
    return "call_" + call_id.encode("utf-8", "surrogatepass").hex()[:59]
