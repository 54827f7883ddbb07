"""OpenAI's Chat Completions: `/v1/chat/completions`. Spoken by OpenCode, Qwen Code, OpenHands,
mini-swe-agent, Aider, LangGraph and most scripts.

Format: OpenAI's API reference for `POST /chat/completions`; `reasoning_content` as vLLM, SGLang and
llama.cpp write it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.chat.read import read_chat
from gymmesh_agent.gateway.dialects.chat.write import chat_document, chat_events
from gymmesh_agent.gateway.dialects.openai_replies import OpenAiReplies, error_object
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.dialects.sse import plain_event
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    Refusal,
)
from gymmesh_responses import dumps_clean

__all__ = ["ChatDialect"]

# Ends OpenCode, Qwen Code and mini-swe-agent at once; the last one goes on after 400 and 403.
_STOP_STATUS: Final = 401


class ChatDialect(OpenAiReplies):
    """See `Dialect`."""

    name = "chat"
    stop_status = _STOP_STATUS
    counted = "chat.input_tokens"  # the API has no such call; no route leads here

    def read(
        self, route: GatewayRoute, headers: Mapping[str, str], body: bytes, seen: SeenRequests
    ) -> GatewayRequest | Refusal:
        """See `Dialect`."""
        return read_chat(route, headers, body, seen)

    def write(self, request: GatewayRequest, answer: GatewayAnswer) -> bytes:
        """See `Dialect`."""
        return dumps_clean(chat_document(request, answer))

    def write_stream(self, request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
        """See `Dialect`."""
        return chat_events(request, answer)

    def write_stream_refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect`."""
        return plain_event({"error": error_object(refusal)})
