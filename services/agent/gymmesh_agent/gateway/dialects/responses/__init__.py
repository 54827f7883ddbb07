"""OpenAI's Responses API: `/v1/responses`. Spoken by Codex and the openai-agents library.

Format: OpenAI's API reference for `POST /responses` and its streaming events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.openai_replies import OpenAiReplies, error_object
from gymmesh_agent.gateway.dialects.responses.read import read_responses
from gymmesh_agent.gateway.dialects.responses.write import response_document, response_events
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.dialects.sse import named_event
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    Refusal,
    RefusalKind,
)
from gymmesh_responses import dumps_clean

__all__ = ["ResponsesDialect"]

# Ends Codex at once; after a 401 it asks five times more.
_STOP_STATUS: Final = 400
# In a stream Codex reads the code alone: these end it at once, all others make it try again.
_STREAM_CODES: Final[Mapping[RefusalKind, str]] = {
    RefusalKind.STOP: "invalid_prompt",
    RefusalKind.INVALID: "invalid_prompt",
    RefusalKind.CONTEXT_LENGTH: "context_length_exceeded",
}


class ResponsesDialect(OpenAiReplies):
    """See `Dialect`."""

    name = "responses"
    stop_status = _STOP_STATUS
    counted = "response.input_tokens"

    def read(
        self, route: GatewayRoute, headers: Mapping[str, str], body: bytes, seen: SeenRequests
    ) -> GatewayRequest | Refusal:
        """See `Dialect`."""
        return read_responses(route, headers, body, seen)

    def write(self, request: GatewayRequest, answer: GatewayAnswer) -> bytes:
        """See `Dialect`."""
        return dumps_clean(response_document(request, answer))

    def write_stream(self, request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
        """See `Dialect`."""
        return response_events(request, answer)

    def write_stream_refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect`: a response that failed."""
        error = error_object(refusal)
        code = _STREAM_CODES.get(refusal.kind, "server_error")
        response = {
            "id": "",
            "object": "response",
            "status": "failed",
            "output": [],
            "error": {"code": code, "message": error["message"]},
        }
        kind = "response.failed"
        return named_event(kind, {"type": kind, "sequence_number": 0, "response": response})
