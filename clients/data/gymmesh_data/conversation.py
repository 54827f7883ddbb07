"""A rollout as chat messages: what most trainers read. Pure.

Responses items become the messages of the Chat Completions API: one assistant message for each
model call (its reasoning, text and tool calls together), a `tool` message for each tool result,
and `user` messages for the environment's messages. Content that chat messages can't represent is
counted by kind, never dropped silently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout, WrongItem
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_rows import ModelCall

_REASONING = "reasoning_content"  # as vLLM, TRL and chat templates spell it

# An assistant message has one text, which stands before its calls, and results must follow these.
_AFTER_CALLS: Final = "positions of text that the model wrote between or after its tool calls"
_UNANSWERED: Final = "messages after the last answer of a conversation"
AS_TEXT: Final = "tool call arguments that are not a JSON object, written as text"
_TEXTS: Final = frozenset(("input_text", "output_text", "text"))
_OF_TOOLS: Final = ("name", "description", "parameters", "strict")


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """How messages are written.

    Attributes:
        arguments_as_objects: whether a tool call's arguments are an object (the form for chat
            templates) or text (the form of the API).
        keep_reasoning: whether reasoning is kept, as `reasoning_content`.
        developer_role: whether to keep the role `developer`. If false, the role becomes `system`,
            which every chat template supports.
    """

    arguments_as_objects: bool = False
    keep_reasoning: bool = True
    developer_role: bool = False


@dataclass(slots=True)
class Conversation:
    """A rollout's messages.

    Attributes:
        prompt_length: the number of messages before the model's first answer.
        tools: the tools in the form of the Chat Completions API.
        losses: the number of elements that messages can't represent, by kind.
        changed: the number of elements that messages have in another form, by kind.
        token_calls: the model call of each message that the model wrote, by the message's index;
            only calls with known tokens.
    """

    messages: list[Json] = field(default_factory=list)
    prompt_length: int = 0
    tools: list[Json] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    token_calls: dict[int, ModelCall] = field(default_factory=dict)

    @property
    def prompt(self) -> list[Json]:
        """The messages before the model first answered."""
        return self.messages[: self.prompt_length]

    @property
    def answered(self) -> bool:
        """Whether the model said anything."""
        return any(one["role"] == "assistant" for one in self.messages[self.prompt_length :])


def conversation_of(rollout: StoredRollout, style: ChatStyle | None = None) -> Conversation:
    """The messages of a rollout.

    Raises:
        UserError: an item doesn't have the form of its type; the text names the item's place.
    """
    said = beginning_of(rollout, style)
    writer = _MessageWriter(said, style or ChatStyle())
    ends = {end - 1: call for _, end, call in rollout.answers()}
    own = {one.call_id for one in ends.values() if rollout.tokens_of(one) is not None}
    for place, item in enumerate(rollout.output):
        writer.add(item, f"{rollout.where}: {rollout.output_key}[{place}]")
        if (call := ends.get(place)) is not None:
            writer.end(call if call.call_id in own else None)
    return said


def beginning_of(rollout: StoredRollout, style: ChatStyle | None = None) -> Conversation:
    """As `conversation_of`, but only the items before the rollout's first model call."""
    said = Conversation()
    writer = _MessageWriter(said, style or ChatStyle())
    if rollout.instructions:
        said.messages.append({"role": "system", "content": rollout.instructions})
    for place, item in enumerate(rollout.first_items):
        writer.add(item, f"{rollout.where}: first item {place}")
    said.prompt_length = len(said.messages)
    for tool in rollout.tools:
        if tool.get("type") == "function":
            kept = {key: tool[key] for key in _OF_TOOLS if tool.get(key) is not None}
            said.tools.append({"type": "function", "function": kept})
        else:
            said.losses[f"tools of type {tool.get('type')}"] += 1
    return said


def to_last_answer(said: Conversation) -> list[Json]:
    """The messages up to the model's last answer, for trainers that learn answers. Later messages,
    such as the next turn's, which nobody answered in this conversation, are counted as lost.
    """
    answers = (n for n, one in enumerate(said.messages, start=1) if one["role"] == "assistant")
    end = max(answers, default=len(said.messages))
    if end < len(said.messages):
        said.losses[_UNANSWERED] += len(said.messages) - end
    return said.messages[:end]


def arguments_as_text(messages: list[Json]) -> int:
    """How many tool calls of these messages have their arguments as a text. In a style with objects
    these are the calls that `Conversation.changed` counts.
    """
    return sum(
        isinstance(call["function"]["arguments"], str)
        for message in messages
        for call in message.get("tool_calls", ())
    )


def numbered_calls(messages: list[Json]) -> list[Json]:
    """Messages whose tool calls are called 0, 1, 2 … instead of by their ids, so that conversations
    can be compared: endpoints create new ids for each conversation. Messages without calls are
        returned as the same objects.
    """
    numbers: dict[Any, int] = {}
    count = 0
    found = []
    for message in messages:
        if "tool_calls" in message:
            calls = []
            for call in message["tool_calls"]:
                numbers[call["id"]] = count
                calls.append({**call, "id": count})
                count += 1
            message = {**message, "tool_calls": calls}
        elif "tool_call_id" in message:
            name = message["tool_call_id"]
            message = {**message, "tool_call_id": numbers.get(name, name)}
        found.append(message)
    return found


class _MessageWriter:
    """Puts items together into the messages of a conversation."""

    def __init__(self, said: Conversation, style: ChatStyle) -> None:
        self.messages = said.messages
        self.losses, self.changed = said.losses, said.changed
        self._token_calls = said.token_calls
        self._style = style
        # The assistant message of the model call whose items are being read; None between calls.
        self._answer: Json | None = None

    def add(self, item: Json, where: str) -> None:
        """An item. `where`: how messages on what is wrong name it."""
        kind = item.get("type", "message")
        try:
            if kind == "function_call":
                self._tool_call(item)
            elif kind == "function_call_output":
                self._tool_result(item)
            elif kind == "message":
                self._message(item)
            elif kind == "reasoning":
                self._reasoning(item)
            else:
                self.losses[f"items of type {kind}"] += 1
        except WrongItem as wrong:
            raise UserError(f"{where}{wrong}") from None

    def end(self, call: ModelCall | None) -> None:
        """A model call's answer has ended. call: it, where it has tokens."""
        if self._answer is not None and call is not None:
            self._token_calls[len(self.messages) - 1] = call
        self._answer = None

    def _begun(self) -> Json:
        if self._answer is None:
            self._answer = {"role": "assistant", "content": None}
            self.messages.append(self._answer)
        return self._answer

    def _going_on(self) -> Json:
        """The assistant message that has room for more text, before its calls or after them."""
        answer = self._begun()
        if "tool_calls" in answer:
            # Its calls have no results yet: the same model call goes on.
            self.losses[_AFTER_CALLS] += 1
        elif answer["content"] is not None:
            self._answer = None
            answer = self._begun()
        return answer

    def _message(self, item: Json) -> None:
        role = _text(item, "role")
        content = self._content(item.get("content"), "content")
        if role == "assistant":
            answer = self._going_on()
            answer["content"] = _joined(answer["content"], content)
            return
        self._answer = None
        if role == "developer" and not self._style.developer_role:
            role = "system"
        if role not in ("system", "developer", "user"):
            raise WrongItem(
                f".role: must be 'system', 'developer', 'user' or 'assistant', not {role!r}"
            )
        self.messages.append({"role": role, "content": content})

    def _tool_call(self, item: Json) -> None:
        arguments: Any = item.get("arguments", "")
        name, call_id = item.get("name"), item.get("call_id")
        if not (type(arguments) is type(name) is type(call_id) is str):
            raise WrongItem(
                ".arguments: must be JSON text"
                if type(arguments) is not str
                else f".{'call_id' if type(name) is str else 'name'}: must be a string"
            )
        if self._style.arguments_as_objects:
            arguments = self._object(arguments)
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        self._begun().setdefault("tool_calls", []).append(call)

    def _object(self, arguments: str) -> Any:
        try:
            value = loads(arguments) if arguments else {}
        except CodecError:
            value = None
        if isinstance(value, dict):
            return value
        self.changed[AS_TEXT] += 1
        return arguments

    def _tool_result(self, item: Json) -> None:
        self._answer = None
        output, call_id = item.get("output"), item.get("call_id")
        content = output if type(output) is str else self._content(output, "output")
        if type(call_id) is not str:
            raise WrongItem(".call_id: must be a string")
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _reasoning(self, item: Json) -> None:
        if not self._style.keep_reasoning:
            self.losses["reasoning"] += 1
            return
        parts = item.get("content") or item.get("summary") or []
        if not isinstance(parts, list):
            raise WrongItem(": 'content' and 'summary' must be lists")
        texts = [part["text"] for part in parts if isinstance(part, dict) and "text" in part]
        if not texts:
            self.losses["reasoning without readable text"] += 1
            return
        answer = self._going_on()
        said = "\n".join(map(str, texts))
        answer[_REASONING] = f"{answer[_REASONING]}\n{said}" if _REASONING in answer else said

    def _content(self, content: Any, key: str) -> Any:
        """A text, or a list of parts where there is an image."""
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            return dumps(content).decode("utf-8", "surrogatepass")
        if len(content) == 1 and type(content[0]) is dict and not content[0].get("annotations"):
            # By far the most usual content.
            only = content[0]
            if only.get("type") in _TEXTS and type(only.get("text")) is str:
                return only["text"]
        parts = [
            part
            for place, one in enumerate(content)
            if (part := self._part(one, key, place)) is not None
        ]
        if all(part["type"] == "text" for part in parts):
            return "".join([part["text"] for part in parts])
        return parts

    def _part(self, part: Any, key: str, place: int) -> Json | None:
        if not isinstance(part, dict):
            raise WrongItem(f".{key}[{place}]: must be an object")
        kind = part.get("type")
        if kind in _TEXTS:
            if part.get("annotations"):
                self.losses["annotations of texts"] += 1
            return {"type": "text", "text": _text(part, "text", f".{key}", place)}
        if kind == "refusal":
            return {"type": "text", "text": _text(part, "refusal", f".{key}", place)}
        if kind == "input_image" and isinstance(part.get("image_url"), str):
            image = {"url": part["image_url"]}
            if isinstance(part.get("detail"), str):
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        self.losses[f"parts of type {kind}"] += 1
        return None


def _joined(before: Any, more: Any) -> Any:
    """Two contents of a message as one."""
    if not before or not more:
        return before or more
    if isinstance(before, str) and isinstance(more, str):
        return f"{before}\n{more}"
    parts = [
        [{"type": "text", "text": one}] if isinstance(one, str) else one for one in (before, more)
    ]
    return parts[0] + parts[1]


def _text(item: Json, key: str, part: str = "", place: int = 0) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        at = f"{part}[{place}]" if part else ""
        raise WrongItem(f"{at}.{key}: must be a string")
    return value
