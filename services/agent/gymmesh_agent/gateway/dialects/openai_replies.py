"""The answers that OpenAI's two APIs have in common: model lists, token counts and errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gymmesh_agent.gateway.dialects.sse import COMMENT
from gymmesh_agent.gateway.request import HttpReply, Json, Refusal, RefusalKind
from gymmesh_responses import dumps_clean

#: Status, `type` and `code` of each refusal. 429 and 5xx make programs try again.
_ERRORS: Final[Mapping[RefusalKind, tuple[int, str, str]]] = {
    RefusalKind.INVALID: (400, "invalid_request_error", "invalid_request"),
    RefusalKind.TOO_LARGE: (413, "invalid_request_error", "request_too_large"),
    RefusalKind.UNAUTHORIZED: (401, "authentication_error", "invalid_api_key"),
    RefusalKind.NOT_FOUND: (404, "invalid_request_error", "not_found"),
    RefusalKind.STOP: (400, "invalid_request_error", "rollout_over"),
    RefusalKind.CONTEXT_LENGTH: (400, "invalid_request_error", "context_length_exceeded"),
    RefusalKind.AGAIN: (503, "server_error", "server_error"),
}
# Programs look for these words where the code gets lost on the way, as LiteLLM does.
_CONTEXT_LENGTH: Final = "This model's maximum context length is exceeded: "

AGAIN_HEADERS: Final[Mapping[str, str]] = {"Retry-After": "1", "X-Should-Retry": "true"}
"""For a refusal after which the same request may succeed; the libraries of OpenAI and Anthropic
read these headers.
"""

NEVER_HEADERS: Final[Mapping[str, str]] = {"X-Should-Retry": "false"}
"""The headers of a refusal that the same request would get again."""


def retry_headers(kind: RefusalKind) -> Mapping[str, str]:
    """The headers that say whether to try again."""
    return AGAIN_HEADERS if kind is RefusalKind.AGAIN else NEVER_HEADERS


def error_object(refusal: Refusal) -> Json:
    """The value of `error`."""
    _, kind, code = _ERRORS[refusal.kind]
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_LENGTH:
        message = _CONTEXT_LENGTH + message
    return {"message": message, "type": kind, "param": None, "code": code}


class OpenAiReplies:
    """The common part of both dialects; see `Dialect`.

    Attributes:
        stop_status: the status of the refusal when the rollout is over; it ends the API's programs
            at once.
        counted: the name of the object that counts tokens.
    """

    keep_alive = COMMENT
    stop_status: int
    counted: str

    def write_models(self, names: Sequence[str], created: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean({"object": "list", "data": [_model(name, created) for name in names]})

    def write_model(self, name: str, created: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean(_model(name, created))

    def write_token_count(self, tokens: int) -> bytes:
        """See `Dialect`."""
        return dumps_clean({"object": self.counted, "input_tokens": tokens})

    def write_refusal(self, refusal: Refusal) -> HttpReply:
        """See `Dialect`."""
        stops = refusal.kind is RefusalKind.STOP
        return HttpReply(
            refusal.status or (self.stop_status if stops else _ERRORS[refusal.kind][0]),
            dumps_clean({"error": error_object(refusal)}),
            retry_headers(refusal.kind),
        )


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "gymmesh"}
