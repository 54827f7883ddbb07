"""What failures of endpoints say: where, what the endpoint said, and what to do about it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.backends.endpoint.classify import http_failure
from gymmesh_model.backends.endpoint.remedies import (
    MOST_SHOWN,
    excerpt,
    explain,
    fix_of,
    shown_url,
    without_fix,
)
from gymmesh_model.errors import answer_invalid, unreachable

BASE = "http://h:8000"
V1 = f"{BASE}/v1"


def said(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


ANSWERED = [
    (404, BASE, b'{"detail":"Not Found"}', f"did you mean {V1}?"),
    (405, BASE, b"", f"did you mean {V1}?"),
    (404, BASE, b"<html>nginx</html>", f"did you mean {V1}?"),
    (404, V1, b"", f"correct 'url' or 'backend': {V1} does not serve this API"),
    (404, V1, b"<html>nginx</html>", "correct 'url': the address serves a web page, not an API"),
    (404, V1, said("The model `m` does not exist."), f"correct 'model': GET {V1}/models lists"),
    (404, BASE, said("model 'm' not found"), f"correct 'model': GET {BASE}/models lists"),
    (400, V1, said("Invalid model name passed in model=m"), "correct 'model'"),
    (401, V1, said("Incorrect key"), "correct 'api_key'"),
    (403, V1, b"", "correct 'api_key'"),
    (400, V1, said("Use 'max_completion_tokens'"), "{max_tokens_key: max_completion_tokens}"),
    (400, V1, said("Invalid 'tools[0].function.name': pattern '^[a-zA-Z0-9_-]+$'"), "rename"),
    (400, V1, said("Invalid 'tools[3].name': string too long. Expected at most 64."), "rename"),
    (400, V1, said("tools.0.custom.name: String should match pattern '^[a-z]{1,64}$'"), "rename"),
    (400, V1, said("max_tokens must be at most 4096"), "lower 'max_output_tokens'"),
    (400, V1, b"The plain HTTP request was sent to HTTPS port", "use https:// in 'url'"),
    (302, V1, b"", "set 'url' to the address to which the endpoint redirects"),
    (500, V1, b"boom", "read the endpoint's log"),
    (429, V1, b"", "wait, or lower 'max_concurrency'"),
    (400, V1, said("temperature is too high"), "check that 'url' is right"),
]


@pytest.mark.parametrize(("status", "base", "body", "fix"), ANSWERED)
def test_an_answer_has_its_remedy(status: int, base: str, body: bytes, fix: str) -> None:
    url = f"{base}/chat/completions"
    error = explain(http_failure("policy", status, {}, body), url, status, body)
    assert fix in error.message
    assert fix_of(error) in error.message
    assert f"(POST {url})" in error.message
    assert str(status) in error.message
    assert fix_of(error) not in without_fix(error)
    if status not in (401, 403):  # those tend to quote the key
        words = json.loads(body)["error"]["message"] if b'"error"' in body else body.decode()
        assert words in error.message


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("connection refused", "start the endpoint, or correct host and port in 'url'"),
        ("the host name cannot be resolved", "correct the host in 'url'"),
        ("no connection within 5 s", "are reachable from this machine"),
        ("TLS: WRONG_VERSION_NUMBER", "use http:// in 'url'"),
        ("TLS: RECORD_LAYER_FAILURE", "use http:// in 'url'"),
        ("TLS: self-signed certificate", "trust the endpoint's certificate"),
        ("the response's head is not valid HTTP/1.1", "whether 'url' needs https://"),
        ("something new", "start the endpoint, or correct 'url'"),
    ],
)
def test_a_connection_that_fails_has_its_remedy(cause: str, fix: str) -> None:
    error = explain(unreachable("policy", cause), f"{V1}/responses", said=cause)
    assert fix in fix_of(error)
    assert cause in error.message


def test_a_page_in_place_of_an_answer() -> None:
    page = b"<!DOCTYPE html><title>Welcome</title>"
    for base, fix in ((V1, "the address serves a web page"), (BASE, f"did you mean {V1}?")):
        error = explain(answer_invalid("policy", "x"), f"{base}/responses", 200, page)
        assert fix in fix_of(error)


def test_a_failure_is_explained_once() -> None:
    error = unreachable("policy", "connection refused")
    once = explain(error, V1, said="connection refused").message
    assert explain(error, BASE, 404).message == once


def test_no_password_and_no_query_is_shown() -> None:
    url = "https://me:pass@h:1/v1/responses?key=hidden#x"
    assert shown_url(url) == "https://h:1/v1/responses"
    for status in (0, 200, 400, 401, 404, 500):
        error = explain(http_failure("p", status or 400, {}, b""), url, status, b"")
        shown = f"{error.message} {dict(error.metadata)}"
        assert "pass" not in shown
        assert "hidden" not in shown


@given(st.text(st.characters(codec=None)) | st.binary(), st.integers(0, 2))
def test_what_is_shown_is_short_plain_and_without_secrets(words: Any, times: int) -> None:
    if isinstance(words, str):
        words = "a sk-secret b".join([words] * (times + 1))
    shown = excerpt(words, ("sk-secret",))
    assert "sk-secret" not in shown
    assert len(shown) <= MOST_SHOWN + 1
    shown.encode()
    assert not any(ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0 for one in shown)


def test_control_characters_are_seen_and_do_nothing() -> None:
    assert excerpt(b"\x1b[2Jgone\x00\n\tx \xc2\x9b1m") == r"\x1b[2Jgone\x00 x \x9b1m"
