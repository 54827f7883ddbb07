"""Which dialect an HTTP request speaks, and what it asks for. Pure.

    POST /v1/responses                           Responses
    POST /v1/responses/input_tokens              Responses, token count
    POST /v1/chat/completions                    Chat Completions
    POST /v1/messages                            Anthropic
    POST /v1/messages/count_tokens               Anthropic, token count
    POST /v1beta/models/M:generateContent        Gemini; also M:streamGenerateContent?alt=sse
    POST /v1beta/models/M:countTokens            Gemini, token count
    GET  /v1/models, /v1/models/M                Anthropic with the header anthropic-version, else
                                                 OpenAI
    GET  /v1beta/models, /v1beta/models/M        Gemini

`/v1` may be absent for the first three: programs differ in whether the address they are given ends
with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from gymmesh_agent.gateway.dialects.anthropic import AnthropicDialect
from gymmesh_agent.gateway.dialects.base import Dialect, GatewayRoute
from gymmesh_agent.gateway.dialects.chat import ChatDialect
from gymmesh_agent.gateway.dialects.gemini import GeminiDialect
from gymmesh_agent.gateway.dialects.responses import ResponsesDialect
from gymmesh_agent.gateway.request import Refusal, RefusalKind, RequestKind

RESPONSES: Final = ResponsesDialect()
CHAT: Final = ChatDialect()
ANTHROPIC: Final = AnthropicDialect()
GEMINI: Final = GeminiDialect()

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect for dialect in (RESPONSES, CHAT, ANTHROPIC, GEMINI)
}
"""The dialects by name."""

_POSTS: Final[Mapping[str, GatewayRoute]] = {
    "responses": GatewayRoute("responses", RequestKind.GENERATE),
    "responses/input_tokens": GatewayRoute("responses", RequestKind.COUNT_TOKENS),
    "chat/completions": GatewayRoute("chat", RequestKind.GENERATE),
    "messages": GatewayRoute("anthropic", RequestKind.GENERATE),
    "messages/count_tokens": GatewayRoute("anthropic", RequestKind.COUNT_TOKENS),
}
_GEMINI: Final = re.compile(r"v1(?:alpha|beta)?/(?:[^:]*/)?(?:models|tunedModels)/([^:]+):(\w+)")
_MODELS: Final = re.compile(r"(?:v1(?:alpha|beta)?/)?models(?:/([^:]+))?")
_METHODS: Final[Mapping[str, tuple[RequestKind, bool]]] = {
    "generateContent": (RequestKind.GENERATE, False),
    "streamGenerateContent": (RequestKind.GENERATE, True),
    "countTokens": (RequestKind.COUNT_TOKENS, False),
}
_GEMINI_VERSIONS: Final = ("v1beta/", "v1alpha/")


def dialect_for(path: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect in which a refusal of this request is written, whether or not the request has a
    route.

    path: without the query. headers: their names in lower case.
    """
    rest = path.strip("/")
    if rest.startswith(_GEMINI_VERSIONS) or _GEMINI.fullmatch(rest):
        return GEMINI
    if "x-goog-api-key" in headers:
        return GEMINI
    rest = rest.removeprefix("v1/")
    if rest in _POSTS:
        return DIALECTS[_POSTS[rest].dialect]
    return ANTHROPIC if "anthropic-version" in headers else CHAT


def route(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> GatewayRoute | Refusal:
    """The route of a request. Raises nothing.

    path: without the rollout's key, not decoded. headers: their names in lower case.
    """
    rest = path.strip("/")
    if method == "GET":
        found = _get(rest, dialect_for(path, headers).name)
    elif method == "POST":
        found = _POSTS.get(rest.removeprefix("v1/")) or _gemini(rest)
    else:
        found = None
    if found is None:
        return Refusal(RefusalKind.NOT_FOUND, "The gateway serves nothing at this path.")
    if found.dialect == GEMINI.name and found.stream and query.get("alt") != "sse":
        return Refusal(
            RefusalKind.INVALID,
            "streamGenerateContent answers only with server-sent events: add alt=sse to the "
            "URL's query.",
        )
    return found


def _gemini(rest: str) -> GatewayRoute | None:
    found = _GEMINI.fullmatch(rest)
    method = _METHODS.get(found[2]) if found else None
    if found is None or method is None:
        return None
    return GatewayRoute(GEMINI.name, method[0], unquote(found[1]), method[1])


def _get(rest: str, dialect: str) -> GatewayRoute | None:
    found = _MODELS.fullmatch(rest)
    if found is None:
        return None
    if found[1] is None:
        return GatewayRoute(dialect, RequestKind.LIST_MODELS)
    return GatewayRoute(dialect, RequestKind.GET_MODEL, unquote(found[1]))
