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
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.errors import MeshError

# Tuples, since a code may be anything, also what cannot be looked up in a set.
_CONTEXT_CODES: Final = ("context_length_exceeded", "exceed_context_size_error")
_CONTEXT_WORDS: Final = re.compile(
    r"maximum context length|context length (?:of|is)|exceeds? the (?:available |model's )?context"
    r"|exceeds max_model_len|context window|prompt is too long"
    r"|longer than the (?:model's |maximum )",
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
    told = f": {words}" if words else ""
    endpoint = f"the endpoint of model '{model}'"
    metadata, again = {"model": model, "http_status": str(status)}, None
    if status in (401, 403):
        # Without the endpoint's words: they tend to quote the key.
        reason = errors.ERROR_REASON_MODEL_CREDENTIAL_REFUSED
        message = f"{endpoint} refused the credential (HTTP {status})"
    elif error.get("code") in _QUOTA_CODES or error.get("type") in _QUOTA_CODES:
        reason, metadata = errors.ERROR_REASON_MODEL_QUOTA_SPENT, {"model": model}
        message = f"the account behind model '{model}' is out of quota{told}"
    elif status == 429:
        reason, metadata = errors.ERROR_REASON_MODEL_RATE_LIMITED, {"model": model}
        message, again = (
            f"{endpoint} limits calls (HTTP 429){told}",
            retry_after(headers),
        )
    elif status >= 500:
        reason = errors.ERROR_REASON_MODEL_SERVER_ERROR
        message, again = f"{endpoint} failed (HTTP {status}){told}", retry_after(headers)
    elif status == 408:
        reason = errors.ERROR_REASON_MODEL_TIMEOUT
        message = f"{endpoint} timed out (HTTP 408){told}"
    elif 400 <= status < 500:
        return _refused(model, status, error, told, metadata)
    else:
        reason = errors.ERROR_REASON_MODEL_ANSWER_INVALID
        metadata = {"model": model, "cause": f"HTTP {status}"}
        message = f"{endpoint} sent an unexpected status, HTTP {status}{told}"
    return MeshError(reason, message, metadata=metadata, retry_after_s=again)


def failure_inside(model: str, error: object, secrets: tuple[str, ...] = ()) -> MeshError:
    """The error for an `error` that an answer with status 200 holds, as routers write it.

    Its code may be an HTTP status; without one the endpoint failed.
    """
    code = error.get("code") if isinstance(error, Mapping) else None
    kind = error.get("type") if isinstance(error, Mapping) else None
    status = 500
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    elif any(isinstance(one, str) and "rate_limit" in one for one in (code, kind)):
        status = 429
    return http_failure(model, status, {}, dumps({"error": error}), secrets)


def failed_response(model: str, error: Mapping[str, Any], secrets: tuple[str, ...]) -> MeshError:
    """The error for a response document whose status is `failed`."""
    words = _words(error, secrets)
    told = f": {words}" if words else ""
    code = error.get("code")
    if str(code).isdecimal():
        return failure_inside(model, error, secrets)
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
        found = _LIMIT.search(message)
        limit = found.group(1) if found else ""
        if isinstance(error.get("n_ctx"), int):
            limit = str(error["n_ctx"])
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
    return excerpt(message, secrets) if isinstance(message, str) else ""
