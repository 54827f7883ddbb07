"""Paths lead to their dialect."""

from __future__ import annotations

import pytest

from gymmesh_agent.gateway.dialects import GatewayRoute, dialect_for, route
from gymmesh_agent.gateway.request import Refusal, RefusalKind, RequestKind

GENERATE, COUNT = RequestKind.GENERATE, RequestKind.COUNT_TOKENS
SSE = {"alt": "sse"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/responses", GatewayRoute("responses", GENERATE)),
        ("/responses", GatewayRoute("responses", GENERATE)),
        ("/v1/responses/input_tokens", GatewayRoute("responses", COUNT)),
        ("/v1/chat/completions", GatewayRoute("chat", GENERATE)),
        ("/chat/completions/", GatewayRoute("chat", GENERATE)),
        ("/v1/messages", GatewayRoute("anthropic", GENERATE)),
        ("/v1/messages/count_tokens", GatewayRoute("anthropic", COUNT)),
        ("/v1beta/models/g-3:generateContent", GatewayRoute("gemini", GENERATE, "g-3")),
        ("/v1beta/models/g-3:streamGenerateContent", GatewayRoute("gemini", GENERATE, "g-3", True)),
        ("/v1/models/a%2Fb:countTokens", GatewayRoute("gemini", COUNT, "a/b")),
        (
            "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
            GatewayRoute("gemini", GENERATE, "g"),
        ),
    ],
)
def test_posts(path: str, expected: GatewayRoute) -> None:
    assert route("POST", path, SSE, {}) == expected


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/models", {}, GatewayRoute("chat", RequestKind.LIST_MODELS)),
        ("/models", {}, GatewayRoute("chat", RequestKind.LIST_MODELS)),
        ("/v1/models/a/b", {}, GatewayRoute("chat", RequestKind.GET_MODEL, "a/b")),
        (
            "/v1/models/m",
            {"anthropic-version": "2023-06-01"},
            GatewayRoute("anthropic", RequestKind.GET_MODEL, "m"),
        ),
        ("/v1beta/models", {}, GatewayRoute("gemini", RequestKind.LIST_MODELS)),
        ("/v1beta/models/m", {}, GatewayRoute("gemini", RequestKind.GET_MODEL, "m")),
        ("/v1/models", {"x-goog-api-key": "k"}, GatewayRoute("gemini", RequestKind.LIST_MODELS)),
    ],
)
def test_gets(path: str, headers: dict[str, str], expected: GatewayRoute) -> None:
    assert route("GET", path, {}, headers) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("HEAD", "/"),
        ("GET", "/v1/responses"),
        ("PUT", "/v1/messages"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1beta/models/m:embedContent"),
        ("POST", "/v1beta/models/m"),
        ("GET", "/v2/models"),
        ("POST", "/api/event_logging/batch"),
    ],
)
def test_nothing_there(method: str, path: str) -> None:
    found = route(method, path, {}, {})
    assert isinstance(found, Refusal)
    assert found.kind is RefusalKind.NOT_FOUND


@pytest.mark.parametrize(
    ("path", "headers", "name"),
    [
        ("/v1/messages", {}, "anthropic"),
        ("/v1/elsewhere", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1beta/models/m:embedContent", {}, "gemini"),
        ("/v1/elsewhere", {"x-goog-api-key": "k"}, "gemini"),
        ("/v1/responses", {}, "responses"),
        ("/v1/elsewhere", {}, "chat"),
    ],
)
def test_refusals_have_the_form_that_the_program_reads(
    path: str, headers: dict[str, str], name: str
) -> None:
    assert dialect_for(path, headers).name == name
