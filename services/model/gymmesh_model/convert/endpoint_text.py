"""Converts texts, and earlier tool calls' arguments and names, to a form that every endpoint
accepts.

Unpaired surrogates have no UTF-8 form: a strict parser rejects the request, and no tokenizer
accepts the text. So a policy could write one, or have a tool repeat one, and end its rollout
without a verdict. Recorded texts keep them; sent texts have U+FFFD, the replacement character,
instead.

A model may write any text as arguments, and the recorded text is never changed. But endpoints parse
the arguments of the calls in a conversation, for the chat template: vLLM, SGLang and llama.cpp
answer 400 or 500 if they are not a JSON object. So a policy could end its rollout without a verdict
by writing one bad call. Therefore such arguments are sent as an object with the text:

    {"invalid_arguments": "<what the model wrote>"}

A valid object is sent exactly as written. Empty arguments are sent as `{}`.

The name of an unknown tool has the same problem: endpoints like OpenAI's answer 400 if it has
characters that they don't allow. These characters are sent as `_`, and a name that is too long is
cut. The call was answered as a call of an unknown tool, and that answer has the full name. The
names of the request's own tools are sent unchanged, as in the list of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from gymmesh_model.errors import unreadable
from gymmesh_responses import (
    LONGEST_TOOL_NAME,
    CodecError,
    dumps,
    dumps_clean,
    is_tool_name,
    with_name_characters,
)

INVALID_ARGUMENTS: Final = "invalid_arguments"
"""The key under which arguments are sent back if they are not a JSON object."""

# What the parsers of routers and servers take: serde_json stops at 128 levels.
_DEPTH: Final = 100


def sent_arguments(written: str) -> str:
    """The arguments of a call as they are sent back to a model.

    An object's keys and values are not changed, even duplicate keys. The following are sent as
    text: invalid JSON (also NaN, Infinity, and numbers beyond a double's range), text with an
    unpaired surrogate, JSON values other than objects, and objects nested deeper than 100 levels.
    """
    if is_object(written):
        return written
    if not written.strip():
        return "{}"
    return dumps({INVALID_ARGUMENTS: whole_text(written)}).decode()


def is_object(text: str) -> bool:
    """Whether even the strictest of the common parsers reads the text as an object."""
    try:
        value = orjson.loads(text)
    except ValueError:  # orjson's own error is one
        return False
    if type(value) is not dict:
        return False
    # Most are too short to be too deep.
    return text.count("{") + text.count("[") <= _DEPTH or _depth(value) <= _DEPTH


def _depth(value: Any) -> int:
    """The levels of objects and arrays, counted without recursion."""
    levels, level = 0, [value]
    while level:
        levels += 1
        level = [
            member
            for container in level
            for member in (container.values() if type(container) is dict else container)
            if type(member) is dict or type(member) is list
        ]
    return levels


def sent_name(written: str, tools: object) -> str:
    """The name of a call as it is sent back; `tools`: the request's tools, as JSON."""
    if is_tool_name(written):
        return written
    offered = tools if isinstance(tools, list) else []
    if any(isinstance(tool, Mapping) and tool.get("name") == written for tool in offered):
        return written
    return with_name_characters(written)[:LONGEST_TOOL_NAME]


def with_sent_calls(items: object, tools: object) -> object:
    """The `input` of Responses parameters, with its calls in a form that endpoints accept. The
    argument is not changed.
    """
    if not isinstance(items, list):
        return items
    return [_with_sent(item, tools) for item in items]


def _with_sent(item: Any, tools: object) -> Any:
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return item
    changed = {}
    arguments, name = item.get("arguments"), item.get("name")
    if isinstance(arguments, str) and (sent := sent_arguments(arguments)) is not arguments:
        changed["arguments"] = sent
    if isinstance(name, str) and (sent := sent_name(name, tools)) is not name:
        changed["name"] = sent
    return {**item, **changed} if changed else item


def whole_text(text: str) -> str:
    """The text with U+FFFD for each unpaired surrogate. Two adjacent halves of a pair become a
    character.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def write_whole(body: Any, write: Callable[[Any], bytes] = dumps_clean) -> bytes:
    """The body of a request as JSON that every endpoint can read; `body` is not changed.

    `write` is the codec's `dumps_clean` or `dumps`. Raises MeshError FIELD_INVALID for a body that
    JSON can't represent. Each parameter may be as deep as the codec reads, and the body around it
    is deeper.
    """
    try:
        written = write(body)
        # Characters are written as they are, but for those that UTF-8 does not have.
        if written.find(b"\\ud") < 0:
            return written
        return write(whole(body))
    except CodecError as error:
        raise unreadable(error) from None


def whole(value: Any) -> Any:
    """A JSON value with `whole_text` applied to every text and key. Returns the argument itself if
    nothing changes.
    """
    if isinstance(value, str):
        return value if value.isascii() else whole_text(value)
    if isinstance(value, dict):
        return {whole(key): whole(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [whole(member) for member in value]
    return value
