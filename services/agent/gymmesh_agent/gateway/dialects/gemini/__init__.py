"""Google's Gemini API: `/v1beta/models/M:generateContent`, `:streamGenerateContent?alt=sse` and
`:countTokens`. Spoken by Gemini CLI.

Format: Google's API reference for generateContent, countTokens, models and errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gymmesh_agent.gateway.dialects.base import GatewayRoute
from gymmesh_agent.gateway.dialects.gemini.read import read_gemini
from gymmesh_agent.gateway.dialects.gemini.write import gemini_document, gemini_events
from gymmesh_agent.gateway.dialects.openai_replies import retry_headers
from gymmesh_agent.gateway.dialects.seen import SeenRequests
from gymmesh_agent.gateway.dialects.sse import plain_event
from gymmesh_agent.gateway.request import (
    GatewayAnswer,
    GatewayRequest,
    HttpReply,
    Json,
    Refusal,
    RefusalKind,
)
from gymmesh_responses import dumps_clean

__all__ = ["GeminiDialect"]

#: Status and `status` of each refusal. Tried with Gemini CLI: 400 ends it at once.
_ERRORS: Final[Mapping[RefusalKind, tuple[int, str]]] = {
    RefusalKind.INVALID: (400, "INVALID_ARGUMENT"),
    RefusalKind.TOO_LARGE: (413, "INVALID_ARGUMENT"),
    RefusalKind.UNAUTHORIZED: (401, "UNAUTHENTICATED"),
    RefusalKind.NOT_FOUND: (404, "NOT_FOUND"),
    RefusalKind.STOP: (400, "FAILED_PRECONDITION"),
    RefusalKind.CONTEXT_LENGTH: (400, "INVALID_ARGUMENT"),
    RefusalKind.AGAIN: (503, "UNAVAILABLE"),
}
_TOO_LONG: Final = "The input token count exceeds the maximum number of tokens allowed: "


class GeminiDialect:
    """See `Dialect`. Gemini CLI fails on comments in a stream, and skips an empty answer."""

    name = "gemini"
    keep_alive = b'data: {"candidates":[]}\n\n'

    def read(
        self, route: GatewayRoute, headers: Mapping[str, str], body: bytes, seen: SeenRequests
    ) -> GatewayRequest | Refusal:
        """See `Dialect`."""
        return read_gemini(route, headers, body, seen)

    def write(self, request: GatewayRequest, answer: GatewayAnswer) -> bytes:
        """See `Dialect`."""
        return dumps_clean(gemini_document(request, answer))

    def write_stream(self, request: GatewayRequest, answer: GatewayAnswer) -> Iterator[bytes]:
        """See `Dialect`."""
        return gemini_events(request, answer)

    def write_models(self, names: Sequence[str], created: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean({"models": [_model(name) for name in names]})

    def write_model(self, name: str, created: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean(_model(name))

    def write_token_count(self, tokens: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean({"totalTokens": tokens})

    def write_refusal(self, refusal: Refusal) -> HttpReply:
        """See `Dialect`."""
        error = _error(refusal)
        return HttpReply(error["error"]["code"], dumps_clean(error), retry_headers(refusal.kind))

    def write_stream_refusal(self, refusal: Refusal) -> bytes:
        """See `Dialect`."""
        return plain_event(_error(refusal))


def _error(refusal: Refusal) -> Json:
    code, status = _ERRORS[refusal.kind]
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_LENGTH:
        message = _TOO_LONG + message
    return {"error": {"code": refusal.status or code, "message": message, "status": status}}


def _model(name: str) -> Json:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
