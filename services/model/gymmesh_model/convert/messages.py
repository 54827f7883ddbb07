"""A Responses conversation as Chat Completions messages.

The answer of one model call (reasoning, a message, function calls) is several items in Responses
and one assistant message in Chat Completions. A call's outputs must directly follow the message
with the call, so items are joined as follows:

- reasoning, then a message, then calls, join one assistant message in that order;
- reasoning or a message after calls also joins, if the conversation later has the output of one of
  these calls. Otherwise it begins a new assistant message.

Tool messages can only have text. An image that a tool returned, and the text after it, follow the
outputs of the same calls in a user message, unless the option `tool_images` changes this.

Chat Completions can't represent item ids and statuses; they mean nothing to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.convert.arrange import SystemMessages, with_system_messages
from gymmesh_model.convert.endpoint_text import sent_arguments, sent_name
from gymmesh_model.convert.parts import check_keys, content_of, text_content
from gymmesh_model.errors import unreadable, unsupported
from gymmesh_responses import CodecError, items_to_list
from gymmesh_runtime.errors import field_invalid

Json = dict[str, Any]

_PLAIN_ROLES: Final = ("user", "system")
# Token captures that a trainer's rows carry along; they are not part of what the model reads.
_CAPTURE: Final = (
    "prompt_token_ids",
    "generation_token_ids",
    "generation_log_probs",
    "routed_experts",
)
# What the output of a tool says that showed an image and no text.
_BELOW: Final = "See below."
_ITEM: Final = frozenset(("type", "id", "status", *_CAPTURE))


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dialect of a Chat Completions endpoint (`options` of a `chat` model).

    max_tokens_key: the key of the answer's limit. Every endpoint knows `max_tokens`, but OpenAI's
        reasoning models refuse it (with a clear error) and require `max_completion_tokens`.
    developer_role: the role of developer messages; few chat templates know `developer`.
    reasoning_key: the key under which earlier reasoning is sent back; null: not sent. In answers,
        both keys are read.
    system_messages: how several system messages are sent, including `instructions` and developer
        messages; few chat templates accept several. `merge`: those at the beginning are joined by
        blank lines, and a later one becomes a user message in the same place. `first`: all are
        joined into one message at the beginning. `keep`: each stays as it is.
    tool_images: where images and files that a tool returned are sent. `user`: in a user message
        after the outputs, since tool messages can only have text. `tool`: in the tool's own
        message, for endpoints that accept them there.
    """

    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    developer_role: Literal["system", "developer"] = "system"
    reasoning_key: Literal["reasoning_content", "reasoning"] | None = "reasoning_content"
    system_messages: SystemMessages = "merge"
    tool_images: Literal["user", "tool"] = "user"


DEFAULT: Final = ChatOptions()


def messages_from_input(
    value: object,
    instructions: object = None,
    options: ChatOptions = DEFAULT,
    tools: object = None,
) -> list[Json]:
    """`input` and `instructions` of Responses parameters as a list of chat messages.

    value: the `input`, text or a list of items. tools: those of the parameters. Raises MeshError
    PARAMETER_UNSUPPORTED, naming the place (`input[3].type`), or FIELD_INVALID if it is not a
    Responses input.
    """
    messages: list[Json] = []
    if isinstance(instructions, str):
        messages.append({"role": "system", "content": instructions})
    elif instructions is not None:
        raise field_invalid("params.instructions", "must be text")
    if isinstance(value, str):
        return [*messages, {"role": "user", "content": value}]
    if not isinstance(value, list):
        raise field_invalid("params.input", "must be text or a list of items")
    transcript = _Transcript(options, value, tools)
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise field_invalid(f"params.input[{index}]", "must be an object")
        transcript.add(item, f"input[{index}]")
    transcript.end()
    return with_system_messages(messages + transcript.messages, options.system_messages)


def messages_from_items(
    items: Sequence[pb.Item],
    instructions: object = None,
    options: ChatOptions = DEFAULT,
    tools: object = None,
) -> list[Json]:
    """Like `messages_from_input`, for items that are still protobuf messages of the contract.
    Raises the same errors.
    """
    try:
        value = items_to_list(items)
    except CodecError as error:
        raise unreadable(error.within("input")) from None
    return messages_from_input(value, instructions, options, tools)


def _reasoning_text(item: Mapping[str, Any], place: str) -> str:
    """The text of a reasoning item: its content, or its summary if it has no content."""
    if item.get("encrypted_content") is not None:
        raise unsupported(
            f"{place}.encrypted_content",
            "only the endpoint that encrypted this content can read the content",
        )
    check_keys(item, _ITEM | {"summary", "content", "encrypted_content"}, place)
    parts = item.get("content") or item.get("summary") or []
    texts = [
        part.get("text") if isinstance(part, Mapping) else None
        for part in (parts if isinstance(parts, list) else [None])
    ]
    if not all(isinstance(text, str) for text in texts):
        raise field_invalid(
            f"params.{place}",
            "is a reasoning item, so 'content' or 'summary' must be a list of texts",
        )
    return "\n\n".join(map(str, texts))


class _Transcript:
    """Builds the list; `_open` is the assistant message that further items may join."""

    def __init__(self, options: ChatOptions, items: Sequence[Any], tools: object) -> None:
        self.messages: list[Json] = []
        self._options = options
        self._items = items
        self._tools = tools
        self._open: Json | None = None
        # What tools showed beside text, which follows their outputs.
        self._shown: list[Json] = []

    @cached_property
    def _names(self) -> Mapping[object, object]:
        """The names of the tools called, by the ids of the calls."""
        return {
            item["call_id"]: item.get("name")
            for item in self._items
            if isinstance(item, Mapping)
            and item.get("type") == "function_call"
            and isinstance(item.get("call_id"), str)
        }

    @cached_property
    def _answered(self) -> frozenset[object]:
        """The ids of the calls whose outputs are in the conversation."""
        return frozenset(
            item["call_id"]
            for item in self._items
            if isinstance(item, Mapping)
            and item.get("type") == "function_call_output"
            and isinstance(item.get("call_id"), str)
        )

    def add(self, item: Mapping[str, Any], place: str) -> None:
        kind = item.get("type", "message" if "role" in item else None)
        if self._shown and kind != "function_call_output":
            self._show()
        if kind == "message":
            self._message(item, place)
        elif kind == "function_call":
            self._call(item, place)
        elif kind == "function_call_output":
            self._output(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        else:
            raise unsupported(f"{place}.type", f"Chat Completions has no item of type '{kind}'")

    def _message(self, item: Mapping[str, Any], place: str) -> None:
        check_keys(item, _ITEM | {"role", "content", "name"}, place)
        role = item.get("role")
        if role == "assistant":
            self._assistant(item, place)
            return
        if role == "developer":
            role = self._options.developer_role
        elif role not in _PLAIN_ROLES:
            raise unsupported(f"{place}.role", f"Chat Completions has no role {role!r}")
        message = {"role": role, "content": content_of(item.get("content"), place)}
        self._close_with(_named(message, item))

    def _assistant(self, item: Mapping[str, Any], place: str) -> None:
        content, refusal = text_content(item.get("content"), place)
        message = self._joinable("content", "refusal")
        if content is not None:
            earlier = message["content"]
            if earlier is not None:
                content = [*_as_parts(earlier), *_as_parts(content)]
            message["content"] = content
        if refusal is not None:
            message["refusal"] = refusal
        _named(message, item)

    def _call(self, item: Mapping[str, Any], place: str) -> None:
        check_keys(item, _ITEM | {"call_id", "name", "arguments"}, place)
        for key in ("call_id", "name", "arguments"):
            if not isinstance(item.get(key), str):
                raise field_invalid(f"params.{place}.{key}", "must be text")
        message = self._open or self._begin()
        name = sent_name(item["name"], self._tools)
        function = {"name": name, "arguments": sent_arguments(item["arguments"])}
        call = {"id": item["call_id"], "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)

    def _output(self, item: Mapping[str, Any], place: str) -> None:
        check_keys(item, _ITEM | {"call_id", "output"}, place)
        if not isinstance(item.get("call_id"), str):
            raise field_invalid(f"params.{place}.call_id", "must be text")
        content = content_of(item.get("output"), place, "output")
        if isinstance(content, list) and self._options.tool_images == "user":
            content = self._text_of(content, item["call_id"])
        self._close_with({"role": "tool", "tool_call_id": item["call_id"], "content": content})

    def _text_of(self, parts: list[Json], call_id: str) -> str | list[Json]:
        """A tool's texts before its first image. The rest goes into the next user message."""
        place = next((at for at, part in enumerate(parts) if part["type"] != "text"), None)
        if place is None:
            return parts
        tool = self._names.get(call_id)
        self._shown += [{"type": "text", "text": f"Shown by {tool or call_id}:"}, *parts[place:]]
        texts = parts[:place]
        return texts if len(texts) > 1 else str(texts[0]["text"]) if texts else _BELOW

    def _show(self) -> None:
        shown, self._shown = self._shown, []
        self._close_with({"role": "user", "content": shown})

    def _reasoning(self, item: Mapping[str, Any], place: str) -> None:
        text = _reasoning_text(item, place)
        key = self._options.reasoning_key
        if key is None or not text:
            return
        message = self._joinable("content", "refusal", key, joins_calls_only=True)
        earlier = message.get(key)
        message[key] = text if earlier is None else f"{earlier}\n\n{text}"

    def _joinable(self, *after: str, joins_calls_only: bool = False) -> Json:
        """The open message if the next item belongs to it, otherwise a new message."""
        message = self._open
        if message is None:
            return self._begin()
        calls = message.get("tool_calls")
        if calls is not None:
            answered = any(call["id"] in self._answered for call in calls)
            return message if answered else self._begin()
        if joins_calls_only or any(message.get(key) is not None for key in after):
            return self._begin()
        return message

    def _begin(self) -> Json:
        self.close()
        self._open = {"role": "assistant", "content": None}
        self.messages.append(self._open)
        return self._open

    def end(self) -> None:
        """Ends the conversation: no more items follow."""
        if self._shown:
            self._show()
        self.close()

    def close(self) -> None:
        """Closes the last message: no more items join it."""
        message, self._open = self._open, None
        # Without calls endpoints want a text, and be it empty: an answer may be reasoning alone.
        said = ("content", "tool_calls", "refusal")
        if message is not None and all(message.get(key) is None for key in said):
            message["content"] = ""

    def _close_with(self, message: Json) -> None:
        self.close()
        self.messages.append(message)


def _as_parts(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _named(message: Json, item: Mapping[str, Any]) -> Json:
    if item.get("name") is not None:
        message["name"] = item["name"]
    return message
