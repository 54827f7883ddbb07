"""The HTTP endpoints: metrics, Prometheus' service discovery, and tools over MCP."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tests.fuzz.http1 import Request, spoilt
from tests.fuzz.judge import problems_of_http
from tests.fuzz.stock import Shop
from tests.fuzz.streams import exchanged
from tests.fuzz.targets.base import values_of
from tests.fuzz.values import Values

_STATUS: Final = re.compile(rb"^HTTP/1\.[01] (\d{3})")
_JSON: Final = (
    (b"Content-Type", b"application/json"),
    (b"Accept", b"application/json, text/event-stream"),
)
#: Large bodies, of many megabytes, are for long runs.
_BODY: Final = 3 * 2**20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Something that listens. `shop`: of tools over MCP, whose sessions' ids it takes."""

    name: str
    address: str
    paths: Sequence[bytes]
    shop: Shop | None = None


def mcp_endpoint(shop: Shop) -> Endpoint:
    """The tools of an environment."""
    parts = urlsplit(shop.place.mcp_url)
    paths = (parts.path.encode(), b"/session", b"/session/tokens", b"/session/items")
    return Endpoint(f"mcp {shop.place.name}", parts.netloc, paths, shop)


class HttpTarget:
    """A connection for each case, with one or several requests, that is then half closed."""

    def __init__(self, name: str, endpoints: Sequence[Endpoint]) -> None:
        self.name = name
        self._endpoints = endpoints
        self.seen: dict[str, int] = {}

    async def open(self) -> None:
        """Nothing is to be found out."""

    async def close(self) -> None:
        """Each case hangs up by itself."""

    async def after(self) -> list[str]:
        problems = []
        for one in self._endpoints:
            if one.shop is None:
                data = Request(path=one.paths[0], headers=((b"Connection", b"close"),)).encoded()
                came = await exchanged(one.address, [data], end=False)
                if _status_of(came.data) != 200:
                    problems.append(f"{one.name} afterwards: {came.data[:300]!r} {came.problem}")
        return problems

    async def run(self, seed: int, case: int) -> list[str]:
        values = values_of(self.name, seed, case)
        endpoint = values.one(self._endpoints)
        data = spoilt(values, _good(values, endpoint))
        cuts = sorted(values.random.randrange(len(data) + 1) for _ in range(values.one((0, 0, 2))))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
        came = await exchanged(endpoint.address, pieces)
        status = _status_of(came.data)
        key = f"{endpoint.name.partition(' ')[0]} {status}"
        self.seen[key] = self.seen.get(key, 0) + 1
        problems = problems_of_http(endpoint.name, status, came.data)
        return [*problems, *([f"{endpoint.name}: {came.problem}"] if came.problem else [])]


def _status_of(data: bytes) -> int:
    found = _STATUS.match(data)
    return int(found[1]) if found else 0


def _good(values: Values, endpoint: Endpoint) -> Request:
    path = values.one(endpoint.paths)
    if endpoint.shop is None:
        return Request(path=path)
    # An owner's token is the session's id; that of an agent is minted with it, by these requests.
    bearer = (b"Authorization", b"Bearer " + _token(values, endpoint.shop).encode())
    if not path.endswith(b"/mcp"):
        method = b"POST" if path.endswith(b"/tokens") else b"GET"
        return Request(method, path, (bearer,))
    return Request(b"POST", path, (bearer, *_JSON), _body(values))


def _token(values: Values, shop: Shop) -> str:
    return values.one(shop.tokens if shop.tokens and values.chance(0.7) else shop.sessions)


def _body(values: Values) -> bytes:
    """A message of JSON-RPC, spoilt or not."""
    if values.chance(0.2):
        return values.json_text()
    if values.chance(0.005):
        return b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"a" * _BODY + b'"}'
    version = {"protocolVersion": "2025-06-18", "capabilities": {}}
    calls: Sequence[tuple[str, Any]] = (
        ("initialize", {**version, "clientInfo": {"name": "a", "version": "1"}}),
        ("tools/list", {}),
        ("tools/list", {"cursor": "a"}),
        ("tools/call", {"name": "calculator", "arguments": {"expression": "1 + 1"}}),
        ("notifications/initialized", {}),
        ("ping", {}),
        ("resources/list", {}),
        ("prompts/get", {"name": "a"}),
        ("completion/complete", {}),
        ("logging/setLevel", {"level": "debug"}),
    )
    method, params = values.one(calls)
    message: Any = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if method.startswith("notifications"):
        del message["id"]
    if values.chance(0.6):
        message = values.changed_json(message)
    if values.chance(0.1):
        message = [message] * values.one((1, 3))
    return json.dumps(message).encode()
