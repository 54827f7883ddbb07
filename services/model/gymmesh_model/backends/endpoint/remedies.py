"""Explains the errors of failing endpoints: a message fit for display, and a fix for the user.
Pure.

One table for the messages of failures and for `gym-cli models check`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.endpoint.secret_texts import MASK
from gymmesh_responses import TOOL_NAME_RULE
from gymmesh_runtime.errors import MeshError

MOST_SHOWN: Final = 200
"""The most characters of an endpoint's text in a message."""

_MOST_READ: Final = 64 * 1024

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_API_PATH: Final = re.compile(r"/(?:chat/completions|responses|completions)$")
_VERSION: Final = re.compile(r"/v\d+(?:/|$)|/openai(?:/|$)")

_E = errors.ErrorReason


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do if a failure has one of the statuses and its text matches `words`.

    statuses: HTTP statuses; 0: a failure without a status; empty: any status. words: a pattern to
    find in the cause or the body. unversioned: only for a URL without a version in its path.
    `{base}` in the text becomes the base URL of the API.
    """

    text: str
    statuses: tuple[int, ...] = ()
    words: str = ""
    unversioned: bool = False


# The first that fits; the most certain come first.
_TABLE: Final = (
    Remedy(
        "use https:// in 'url': the port speaks TLS", (400,), r"https port|tls|to an https server"
    ),
    Remedy(
        "use http:// in 'url': the port does not speak TLS", (0,), r"wrong.version|record.layer"
    ),
    Remedy(
        "make the system trust the endpoint's certificate (SSL_CERT_FILE), or correct the host in "
        "'url'",
        (0,),
        r"^tls: .*(?:certificate|mismatch)",
    ),
    Remedy("start the endpoint, or correct host and port in 'url'", (0,), r"refused"),
    Remedy("correct the host in 'url'", (0,), r"host name cannot be resolved|no address"),
    Remedy(
        "check that host and port in 'url' are reachable from this machine", (0,), r"no connection"
    ),
    Remedy(
        "check that the endpoint runs, and whether 'url' needs https:// or another port",
        (0,),
        r"head is not valid http|closed by the endpoint",
    ),
    Remedy("correct 'api_key', and 'headers' if the endpoint needs headers", (401, 403)),
    Remedy(
        f"rename the tool in the task: this endpoint accepts names of {TOOL_NAME_RULE}",
        (400, 422),
        r"tools?\b.{0,40}\bname\b.*(?:pattern|too long|at most 64|a-zA-Z0-9)",
    ),
    Remedy(
        "correct 'model': GET {base}/models lists valid names",
        (400, 404),
        r"model\b.*(?:not (?:be )?found|not exist|unknown|invalid|not available|not supported)"
        r"|(?:unknown|no such|invalid) model|not find.*model|model_not_found",
    ),
    Remedy("did you mean {base}/v1?", (200, 404, 405), unversioned=True),
    Remedy(
        "correct 'url': the address serves a web page, not an API", words=r"^\s*<(?:!doctype|html)"
    ),
    Remedy("correct 'url' or 'backend': {base} does not serve this API", (404, 405)),
    Remedy(
        "set options: {{max_tokens_key: max_completion_tokens}}", (400,), r"max_completion_tokens"
    ),
    Remedy("lower 'max_output_tokens' in 'params'", (400, 422), r"max_tokens|max_output_tokens"),
    Remedy("set 'url' to the address to which the endpoint redirects", (301, 302, 303, 307, 308)),
)

# By reason, where nothing in the table above fits.
_BY_REASON: Final[dict[int, str]] = {
    _E.ERROR_REASON_MODEL_UNREACHABLE: "start the endpoint, or correct 'url'",
    _E.ERROR_REASON_MODEL_TIMEOUT: "raise the time limit, or check the endpoint's load",
    _E.ERROR_REASON_MODEL_RATE_LIMITED: "wait, or lower 'max_concurrency'",
    _E.ERROR_REASON_MODEL_SERVER_ERROR: "read the endpoint's log",
    _E.ERROR_REASON_MODEL_ANSWER_INVALID: "check 'url' and its API version, and that 'backend' "
    "names the endpoint's API",
    _E.ERROR_REASON_MODEL_REQUEST_REFUSED: "check that 'url' is right, and that the "
    "endpoint supports 'model', 'params' and 'options'",
    _E.ERROR_REASON_MODEL_CONTEXT_EXCEEDED: "use a model with a longer context",
    _E.ERROR_REASON_MODEL_QUOTA_SPENT: "top up the account, or use another 'api_key'",
    _E.ERROR_REASON_MODEL_CREDENTIAL_REFUSED: (
        "correct 'api_key', and 'headers' if the endpoint needs headers"
    ),
    _E.ERROR_REASON_PARAMETER_UNSUPPORTED: "remove the parameter from 'params'",
    _E.ERROR_REASON_FIELD_INVALID: "correct 'params'",
}
# Of these, the conversation or the moment is the cause, and no configuration.
_PLAIN: Final = frozenset(
    (
        _E.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
        _E.ERROR_REASON_MODEL_QUOTA_SPENT,
        _E.ERROR_REASON_MODEL_RATE_LIMITED,
        _E.ERROR_REASON_MODEL_SERVER_ERROR,
        _E.ERROR_REASON_MODEL_TIMEOUT,
    )
)


def explain(
    error: MeshError, url: str, status: int = 0, said: bytes | str = b"", method: str = "POST"
) -> MeshError:
    """The error, with the place where it happened and a fix.

    url: the called URL. status: the HTTP status, 0 without an answer. said: the body, or the cause
    if there is no body; it is examined, never shown. The metadata also has the fix, as `fix`.
    """
    if "fix" in error.metadata:
        return error
    fix = _found(error.reason, url, status, said)
    where = shown_url(url)
    error.metadata["url"] = where
    error.metadata["fix"] = fix
    error.message = f"{error.message} ({method} {where}); {fix}"
    return error


def fix_of(error: MeshError) -> str:
    """What a user can do about a failure."""
    return error.metadata.get("fix") or _BY_REASON.get(error.reason, "see the message")


def without_fix(error: MeshError) -> str:
    """Its message without the remedy."""
    return error.message.removesuffix(f"; {error.metadata.get('fix', '')}")


def excerpt(said: bytes | str, secrets: tuple[str, ...] = ()) -> str:
    """The beginning of an endpoint's text: one line, without secrets or control characters."""
    text = said[:_MOST_READ].decode(errors="replace") if isinstance(said, bytes) else said
    for secret in secrets:
        text = text.replace(secret, MASK)
    words = " ".join(text[: 8 * MOST_SHOWN].split())
    words = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], words)
    return words if len(words) <= MOST_SHOWN else words[:MOST_SHOWN] + "…"


def shown_url(url: str | None) -> str:
    """A URL as it may be shown: without a user's name and password, or a query."""
    if not url:
        return ""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _found(reason: int, url: str, status: int, said: bytes | str) -> str:
    base = _API_PATH.sub("", shown_url(url))
    text = said[: 4 * 1024].decode(errors="replace") if isinstance(said, bytes) else said
    is_versioned = _VERSION.search(urlsplit(base).path) is not None
    for row in _TABLE if reason not in _PLAIN else ():
        if row.statuses and status not in row.statuses:
            continue
        if row.unversioned and is_versioned:
            continue
        if not row.words or re.search(row.words, text, re.IGNORECASE | re.DOTALL):
            return row.text.format(base=base)
    return _BY_REASON.get(reason, "see the message")
