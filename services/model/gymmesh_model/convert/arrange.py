"""Puts chat messages into an order that strict chat templates accept: pure, on parsed JSON.

Many templates raise an error if a system message comes after the first message. Some raise an error
if an answer has two tool calls. The endpoint then refuses the conversation (400), and the rollout
would end without a verdict, although another template accepts the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal

Json = dict[str, Any]
SystemMessages = Literal["merge", "first", "keep"]
"""How several system messages are sent; see ChatOptions."""

_SYSTEM: Final = ("system", "developer")
_PLAIN: Final = {"role", "content"}


def with_system_messages(messages: list[Json], how: SystemMessages) -> list[Json]:
    """The messages, with their system messages arranged as `how` says. The arguments are not
    changed.

    A developer message is a system message, too. System messages with a name stay as they are.
    """
    if how == "keep" or not any(_is_system(message) for message in messages[1:]):
        return messages
    leading = list(takewhile(_is_system, messages))
    rest = messages[len(leading) :]
    if how == "first":
        leading += [message for message in rest if _is_system(message)]
        rest = [message for message in rest if not _is_system(message)]
    else:
        rest = [{**one, "role": "user"} if _is_system(one) else one for one in rest]
    return [_merged(leading), *rest] if leading else rest


def one_call_each(messages: Sequence[Json]) -> list[Json]:
    """The messages, with each tool call in its own answer, directly before the call's output.

    An answer's text and reasoning stay with its first call.
    """
    made: list[Json] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            made.append(message)
            continue
        outputs = list(takewhile(lambda one: one.get("role") == "tool", rest))
        del rest[: len(outputs)]
        for call in calls:
            made.append({**message, "tool_calls": [call]})
            message = {"role": "assistant", "content": None}
            own = [one for one in outputs if one.get("tool_call_id") == call.get("id")]
            made += own
            outputs = [one for one in outputs if one not in own]
        made += outputs
    return made


def has_several_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an answer among the messages has more than one tool call."""
    return any(len(message.get("tool_calls") or ()) > 1 for message in messages)


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in _SYSTEM and message.keys() <= _PLAIN


def _merged(messages: Sequence[Json]) -> Json:
    """One message with all contents: texts joined by a blank line, parts one after another."""
    if len(messages) == 1:
        return messages[0]
    contents = [message["content"] for message in messages]
    content: Any
    if all(isinstance(one, str) for one in contents):
        content = "\n\n".join(contents)
    else:
        content = []
        for one in contents:
            content += [{"type": "text", "text": one}] if isinstance(one, str) else one
    return {"role": messages[0]["role"], "content": content}
