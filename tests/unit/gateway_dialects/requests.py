"""Requests as programs send them, for the tests of the dialects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gymmesh_agent.gateway.dialects import DIALECTS, SeenRequests, route
from gymmesh_agent.gateway.dialects.anthropic import read as anthropic
from gymmesh_agent.gateway.dialects.chat import read as chat
from gymmesh_agent.gateway.dialects.gemini import read as gemini
from gymmesh_agent.gateway.dialects.responses import read as responses
from gymmesh_agent.gateway.request import GatewayRequest, Refusal

Json = dict[str, Any]

PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}

#: What each dialect leaves out, and why.
LEFT_OUT = {
    "responses": responses.LEFT_OUT,
    "chat": chat.LEFT_OUT,
    "anthropic": anthropic.LEFT_OUT,
    "gemini": gemini.LEFT_OUT,
}


def cases(name: str) -> list[Json]:
    """The cases of a file beside this one."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    found: list[Json] = yaml.load(text, yaml.CSafeLoader)
    return found


def ask(
    path: str,
    body: object,
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> GatewayRequest | Refusal:
    """What a POST of this body is read into; bytes are sent as they are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = route("POST", path, query or {}, headers or {})
    if isinstance(found, Refusal):
        return found
    return DIALECTS[found.dialect].read(found, headers or {}, raw, SeenRequests())


def read(dialect: str, body: object) -> GatewayRequest:
    """A body of the dialect that can be read."""
    request = ask(PATHS[dialect], body)
    assert isinstance(request, GatewayRequest), request
    return request
