"""The arguments of earlier tool calls, as any endpoint can read them.

What a model wrote as arguments may be anything, and what is recorded stays as it wrote it. But
endpoints parse the arguments of the calls in a conversation, for the chat template: vLLM, SGLang
and llama.cpp answer 400 or 500 when they are no JSON object. The policy would end its rollout
without a verdict by writing one bad call. So what is sent for such a call is an object that holds
the text:

    {"invalid_arguments": "<what the model wrote>"}

An object goes out as it was written, to the letter. No arguments at all are `{}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gymmesh_model.convert.whole import whole_text
from gymmesh_responses import dumps

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


def with_sent_arguments(items: object) -> object:
    """`input` of Responses parameters, its calls' arguments as `sent_arguments`; not changed."""
    if not isinstance(items, list):
        return items
    return [_with_sent(item) for item in items]


def _with_sent(item: Any) -> Any:
    if not isinstance(item, Mapping) or item.get("type") != "function_call":
        return item
    written = item.get("arguments")
    if not isinstance(written, str):
        return item
    sent = sent_arguments(written)
    return item if sent is written else {**item, "arguments": sent}
