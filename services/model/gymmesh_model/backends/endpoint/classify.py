"""Turns what an HTTP endpoint said went wrong into one typed error: pure.

Endpoints agree on status codes but not on bodies. Read here: OpenAI's `{"error": {code, type,
message}}`, vLLM's and llama.cpp's `{"error": {code: 400, type, message, n_ctx}}`, and the older
flat `{"object": "error", "message", …}`.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.endpoint.remedies import excerpt
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.errors import MeshError

# Tuples, since a code may be anything, also what cannot be looked up in a set.
_CONTEXT_CODES: Final = ("context_length_exceeded", "exceed_context_size_error")
_CONTEXT_WORDS: Final = re.compile(
    r"maximum context length|context length (?:of|is)|exceeds? the (?:available |model's )?context"
    r"|context window|prompt is too long|longer than the (?:model's |maximum )",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(r"(?:context length (?:is|of)|context size \()\s*(\d+)", re.IGNORECASE)
_QUOTA_CODES: Final = ("insufficient_quota", "billing_hard_limit_reached")
_MAX_RETRY_AFTER: Final = 3600.0


def http_failure(
    model: str, status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[str, ...] = ()
) -> MeshError:
    """The error for an HTTP status other than 200.

    model: the name in the mesh. headers: case-insensitive. secrets: texts that endpoints like
    to repeat and that must not get into the error.
    """
    error = _error_of(body)
    words = _words(error, secrets) or excerpt(body, secrets)
    metadata = {"model": model, "http_status": str(status)}
    told = f": {words}" if words else ""
    if status in (401, 403):
        # Without the endpoint's words: they tend to quote the key.
        return MeshError(
            errors.ERROR_REASON_MODEL_CREDENTIAL_REFUSED,
            f"the endpoint of model '{model}' refused the credential (HTTP {status})",
            metadata=metadata,
        )
    if error.get("code") in _QUOTA_CODES or error.get("type") in _QUOTA_CODES:
        return MeshError(
            errors.ERROR_REASON_MODEL_QUOTA_SPENT,
            f"the account behind model '{model}' is out of quota{told}",
            metadata={"model": model},
        )
    if status == 429:
        return MeshError(
            errors.ERROR_REASON_MODEL_RATE_LIMITED,
            f"the endpoint of model '{model}' asks for fewer calls (HTTP 429){told}",
            metadata={"model": model},
            retry_after_s=retry_after(headers),
        )
    if status >= 500:
        return MeshError(
            errors.ERROR_REASON_MODEL_SERVER_ERROR,
            f"the endpoint of model '{model}' failed (HTTP {status}){told}",
            metadata=metadata,
            retry_after_s=retry_after(headers),
        )
    if status == 408:
        return MeshError(
            errors.ERROR_REASON_MODEL_TIMEOUT,
            f"the endpoint of model '{model}' gave up waiting (HTTP 408){told}",
            metadata=metadata,
        )
    if 400 <= status < 500:
        return _refused(model, status, error, told, metadata)
    return MeshError(
        errors.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the endpoint of model '{model}' answered HTTP {status}, which is no answer{told}",
        metadata={"model": model, "cause": f"HTTP {status}"},
    )


def failed_response(model: str, error: Mapping[str, Any], secrets: tuple[str, ...]) -> MeshError:
    """The error for a response document whose status is `failed`."""
    words = _words(error, secrets)
    told = f": {words}" if words else ""
    code = error.get("code")
    metadata = {"model": model, "code": str(code)}
    if code in _CONTEXT_CODES:
        return _refused(model, 200, error, told, metadata)
    if code == "rate_limit_exceeded":
        reason = errors.ERROR_REASON_MODEL_RATE_LIMITED
    elif code in _QUOTA_CODES:
        reason = errors.ERROR_REASON_MODEL_QUOTA_SPENT
    elif code is None or code in ("server_error", "vector_store_timeout"):
        reason = errors.ERROR_REASON_MODEL_SERVER_ERROR
    else:
        reason = errors.ERROR_REASON_MODEL_REQUEST_REFUSED
    return MeshError(
        reason, f"the endpoint of model '{model}' reports a failure{told}", metadata=metadata
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header Retry-After (a number or an HTTP date), at most one hour."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    if seconds != seconds:  # NaN
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER)


def _refused(
    model: str, status: int, error: Mapping[str, Any], told: str, metadata: Mapping[str, str]
) -> MeshError:
    message = str(error.get("message") or "")
    if (
        error.get("code") in _CONTEXT_CODES
        or error.get("type") in _CONTEXT_CODES
        or _CONTEXT_WORDS.search(message)
    ):
        limit = _limit(error, message)
        return MeshError(
            errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
            f"the conversation is longer than the context of model '{model}'{told}",
            metadata={"model": model} | ({"limit_tokens": limit} if limit else {}),
        )
    return MeshError(
        errors.ERROR_REASON_MODEL_REQUEST_REFUSED,
        f"the endpoint of model '{model}' refused the request (HTTP {status}){told}",
        metadata=metadata,
    )


def _limit(error: Mapping[str, Any], message: str) -> str:
    if isinstance(error.get("n_ctx"), int):
        return str(error["n_ctx"])
    found = _LIMIT.search(message)
    return found.group(1) if found else ""


def _error_of(body: bytes) -> Mapping[str, Any]:
    try:
        document = loads(body)
    except CodecError:
        return {}
    if not isinstance(document, Mapping):
        return {}
    error = document.get("error", document)
    return error if isinstance(error, Mapping) else {"message": error}


def _words(error: Mapping[str, Any], secrets: tuple[str, ...]) -> str:
    message = error.get("message")
    if not isinstance(message, str):
        return ""
    return excerpt(message, secrets)
