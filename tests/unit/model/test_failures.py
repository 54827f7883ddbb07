"""What an endpoint's failures become, and which of them are tried again."""

from __future__ import annotations

import json
import random
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.backends.endpoint.attempts import RetryPolicy
from gymmesh_model.backends.endpoint.classify import failed_response, http_failure, retry_after
from gymmesh_runtime.errors import MeshError


def failure(status: int, error: Any = None, headers: dict[str, str] | None = None) -> MeshError:
    body = b"<html>" if error is None else json.dumps({"error": error}).encode()
    return http_failure("policy", status, headers or {}, body, ("sk-secret",))


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (400, {"message": "bad"}, "MODEL_REQUEST_REFUSED"),
        (404, None, "MODEL_REQUEST_REFUSED"),
        (400, {"code": "context_length_exceeded"}, "MODEL_CONTEXT_EXCEEDED"),
        (400, {"type": "exceed_context_size_error", "n_ctx": 64}, "MODEL_CONTEXT_EXCEEDED"),
        (400, {"message": "the model's maximum context length is 9"}, "MODEL_CONTEXT_EXCEEDED"),
        (401, {"message": "Incorrect API key: sk-sec***"}, "MODEL_CREDENTIAL_REFUSED"),
        (403, None, "MODEL_CREDENTIAL_REFUSED"),
        (408, None, "MODEL_TIMEOUT"),
        (429, {"message": "slow down"}, "MODEL_RATE_LIMITED"),
        (429, {"code": "insufficient_quota"}, "MODEL_QUOTA_SPENT"),
        (500, "text", "MODEL_SERVER_ERROR"),
        (502, None, "MODEL_SERVER_ERROR"),
        (504, None, "MODEL_SERVER_ERROR"),
        (302, None, "MODEL_ANSWER_INVALID"),
        (204, None, "MODEL_ANSWER_INVALID"),
    ],
)
def test_each_status_has_its_reason(status: int, error: Any, reason: str) -> None:
    made = failure(status, error)
    assert made.reason_name == reason
    assert made.metadata["model"] == "policy"
    assert "sk-sec" not in made.message


def test_the_context_limit_is_told() -> None:
    said = {"message": "This model's maximum context length is 8192 tokens."}
    assert failure(400, said).metadata["limit_tokens"] == "8192"
    counted = {"type": "exceed_context_size_error", "n_ctx": 64}
    assert failure(400, counted).metadata["limit_tokens"] == "64"


@given(st.text(st.characters(codec=None)), st.integers(400, 599), st.binary(max_size=20))
def test_no_body_breaks_the_classifier_or_leaks(words: str, status: int, junk: bytes) -> None:
    for error in (words, {"message": f"{words} sk-secret {words}"}, [words], {"code": [words]}):
        made = failure(status, error)
        assert "sk-secret" not in str(made)
        made.message.encode()  # a status message is UTF-8
    http_failure("policy", status, {}, junk)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("server_error", "MODEL_SERVER_ERROR"),
        ("rate_limit_exceeded", "MODEL_RATE_LIMITED"),
        ("insufficient_quota", "MODEL_QUOTA_SPENT"),
        ("context_length_exceeded", "MODEL_CONTEXT_EXCEEDED"),
        ("invalid_prompt", "MODEL_REQUEST_REFUSED"),
        (None, "MODEL_SERVER_ERROR"),
    ],
)
def test_failed_responses(code: str | None, reason: str) -> None:
    assert failed_response("policy", {"code": code, "message": "x"}, ()).reason_name == reason


def test_retry_after() -> None:
    assert retry_after({"Retry-After": "1.5"}) == 1.5
    assert retry_after({"Retry-After": "1e9"}) == 3600
    assert retry_after({"Retry-After": "-3"}) == 0
    in_a_minute = retry_after({"Retry-After": formatdate(time.time() + 60, usegmt=True)})
    assert in_a_minute is not None
    assert 50 < in_a_minute <= 60
    for nonsense in ("", "soon", "nan"):
        assert retry_after({"Retry-After": nonsense}) is None


retried = st.sampled_from(
    [
        errors.ERROR_REASON_MODEL_UNREACHABLE,
        errors.ERROR_REASON_MODEL_RATE_LIMITED,
        errors.ERROR_REASON_MODEL_SERVER_ERROR,
    ]
)


@given(retried, st.integers(0, 9), st.none() | st.floats(0, 90), st.floats(-1, 60))
def test_a_retry_is_within_its_bounds(
    reason: errors.ErrorReason.ValueType, done: int, wait: float | None, remaining: float
) -> None:
    policy = RetryPolicy(max_retries=3, base_s=0.25, cap_s=8)
    error = MeshError(reason, "x", retry_after_s=wait)
    assert policy.allows(done, error) == (done < 3)
    delay = policy.delay(done, error, remaining, random.Random(done))
    if delay is not None:
        assert delay < remaining
        assert (wait or 0) <= delay <= (wait or 0) + min(8, 0.25 * 2**done)


@pytest.mark.parametrize(
    "reason",
    [
        errors.ERROR_REASON_MODEL_TIMEOUT,
        errors.ERROR_REASON_MODEL_REQUEST_REFUSED,
        errors.ERROR_REASON_MODEL_QUOTA_SPENT,
        errors.ERROR_REASON_MODEL_ANSWER_INVALID,
        errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
    ],
)
def test_what_would_fail_again_is_not_retried(reason: errors.ErrorReason.ValueType) -> None:
    assert not RetryPolicy().allows(0, MeshError(reason, "x"))
