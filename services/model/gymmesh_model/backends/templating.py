"""What a tokenizer's chat template reads, and which tokenizer it is. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gymmesh_responses import CodecError, loads


class Tokenizer(Protocol):
    """What is needed of a tokenizer; those of `transformers` have it."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> Any:
        """The token ids of a conversation."""

    def decode(self, token_ids: Sequence[int], **options: Any) -> Any:
        """The text of token ids."""


def for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as most templates read it: texts plain, and tool calls' arguments as objects."""
    made = plain(message)
    if made.get("tool_calls"):
        made["tool_calls"] = [_call_for_template(call) for call in made["tool_calls"]]
    return made


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose texts are plain."""
    made = dict(message)
    content = made.get("content")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        made["content"] = "".join(part["text"] for part in content)
    elif content is None:
        made["content"] = ""
    return made


def _call_for_template(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        arguments = loads(function.get("arguments") or "{}")
    except CodecError:
        return dict(call)
    if isinstance(arguments, dict):
        function["arguments"] = arguments
    return {**call, "function": function}


def tokenizer_digest(tokenizer: Tokenizer) -> bytes:
    """As tokens.proto says; empty for a tokenizer that does not show its vocabulary and its
    template, since others could then have the same digest.
    """
    template = str(getattr(tokenizer, "chat_template", "") or "")
    vocabulary: dict[str, int] = getattr(tokenizer, "get_vocab", dict)()
    if not template or not vocabulary:
        return b""
    digest = hashlib.sha256(template.encode())
    for token, number in sorted(vocabulary.items(), key=lambda one: (one[1], one[0])):
        digest.update(f"\0{number}\0{token}".encode("utf-8", "surrogatepass"))
    return digest.digest()
