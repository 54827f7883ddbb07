"""Anthropic's Messages API: `/v1/messages` and `/v1/messages/count_tokens`. Spoken by Claude Code.

Format: Anthropic's API reference for messages, token counting, models and errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from gymmesh_agent.gateway.dialects.anthropic.read import read_anthropic
from gymmesh_agent.gateway.dialects.anthropic.write import anthropic_document, anthropic_events
from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.openai_replies import retry_headers
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.dialects.sse import COMMENT, named_event
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    HttpReply,
    Json,
    Refusal,
    RefusalKind,
)
from gymmesh_responses import dumps_clean

__all__ = ["AnthropicDialect"]

#: Status and `type` of each refusal. Tried with Claude Code: 403 ends it at once, 400 after six
#: attempts, and the words of a prompt that is too long end it, too.
_ERRORS: Final[Mapping[RefusalKind, tuple[int, str]]] = {
    RefusalKind.INVALID: (400, "invalid_request_error"),
    RefusalKind.TOO_LARGE: (413, "request_too_large"),
    RefusalKind.UNAUTHORIZED: (401, "authentication_error"),
    RefusalKind.NOT_FOUND: (404, "not_found_error"),
    RefusalKind.STOP: (403, "permission_error"),
    RefusalKind.CONTEXT_LENGTH: (400, "invalid_request_error"),
    RefusalKind.AGAIN: (529, "overloaded_error"),
}


class AnthropicDialect:
    """See `Dialect`."""

    name = "anthropic"
    keep_alive = COMMENT

    def read(
        self, route: GatewayRoute, headers: Mapping[str, str], body: bytes, seen: SeenRequests
    ) -> GatewayRequest | Refusal:
        """See `Dialect`."""
        return read_anthropic(route, headers, body, seen)

    def write(self, request: GatewayRequest, answer: GatewayAnswer) -> bytes:
        """See `Dialect`."""
        return dumps_clean(anthropic_document(request, answer))

    def write_stream(self, request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
        """See `Dialect`."""
        return anthropic_events(request, answer)

    def write_models(self, names: Sequence[str], created: int) -> bytes:
        """See `Dialect`."""
        models = [_model(name, created) for name in names]
        ends = {"first_id": names[0], "last_id": names[-1]} if names else {}
        page: Json = {"data": models, "has_more": False, "first_id": None, "last_id": None}
        return dumps_clean({**page, **ends})

    def write_model(self, name: str, created: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean(_model(name, created))

    def write_token_count(self, tokens: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean({"input_tokens": tokens})

    def write_refusal(self, refusal: Refusal) -> HttpReply:
        """See `Dialect`."""
        status = refusal.status or _ERRORS[refusal.kind][0]
        return HttpReply(status, dumps_clean(_error(refusal)), retry_headers(refusal.kind))

    def write_stream_refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect`."""
        return named_event("error", _error(refusal))


def _error(refusal: Refusal) -> Json:
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_LENGTH:
        message = f"prompt is too long: {message}"
    return {"type": "error", "error": {"type": _ERRORS[refusal.kind][1], "message": message}}


def _model(name: str, created: int) -> Json:
    made = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": made}
