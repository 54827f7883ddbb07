"""What is sent, as any endpoint can read it: texts, and earlier tool calls' arguments and names.

Unpaired surrogates have no UTF-8 form: a strict parser refuses the request, and no tokenizer takes
such a text. A policy could write one, or have a tool repeat one, and end its rollout without a
verdict. What is recorded keeps them; what is sent has U+FFFD, the replacement character, in their
place.

What a model wrote as arguments may be anything, and what is recorded stays as it wrote it. But
endpoints parse the arguments of the calls in a conversation, for the chat template: vLLM, SGLang
and llama.cpp answer 400 or 500 when they are no JSON object. The policy would end its rollout
without a verdict by writing one bad call. So what is sent for such a call is an object that holds
the text:

    {"invalid_arguments": "<what the model wrote>"}

An object goes out as it was written, to the letter. No arguments at all are `{}`.

It is the same with the name of a tool that the model was never given: endpoints of OpenAI's kind
answer 400 when it has other characters than theirs. Those are sent as `_`, and what is too long is
cut off; the call was answered as that of an unknown tool, and its answer says its name in full. A
name that the request itself gives a tool goes out as it is, as it does among the tools.
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
"""The key under which arguments that are no JSON object are sent back."""

# What the parsers of routers and servers take: serde_json stops at 128 levels.
_DEPTH: Final = 100


def sent_arguments(written: str) -> str:
    """The arguments of a call as they are sent back to a model.

    Of an object's keys and values nothing is changed, equal keys included. No object, and thus
    sent as text: what is no JSON (NaN and Infinity too, and a number beyond a double's range), an
    unpaired surrogate, any other JSON value, and an object nested deeper than 100 levels.
    """
    if is_object(written):
        return written
    if not written.strip():
        return "{}"
    return dumps({INVALID_ARGUMENTS: whole_text(written)}).decode()


def is_object(text: str) -> bool:
    """Whether the strictest of the usual parsers reads an object there."""
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
    """The name of a call as it is sent back; `tools`: those of the request, as JSON."""
    if is_tool_name(written):
        return written
    offered = tools if isinstance(tools, list) else []
    if any(isinstance(tool, Mapping) and tool.get("name") == written for tool in offered):
        return written
    return with_name_characters(written)[:LONGEST_TOOL_NAME]


def with_sent_calls(items: object, tools: object) -> object:
    """`input` of Responses parameters, its calls as endpoints take them; not changed."""
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
    """The text with U+FFFD for each unpaired surrogate; two halves that meet are a character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def write_whole(body: Any, write: Callable[[Any], bytes] = dumps_clean) -> bytes:
    """The body of a request as JSON that every endpoint can read; `body` is not changed.

    `write` is the codec's `dumps_clean` or `dumps`. Raises MeshError FIELD_INVALID for what JSON
    cannot hold: parameters may each be as deep as the codec reads, and a body is deeper.
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
    """A JSON value with `whole_text` for every text and key; the same where that is the same."""
    if isinstance(value, str):
        return value if value.isascii() else whole_text(value)
    if isinstance(value, dict):
        return {whole(key): whole(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [whole(member) for member in value]
    return value
