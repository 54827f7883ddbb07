"""How an endpoint's answers are fetched: by the own HTTP client, or by aiohttp through a proxy.

Both raise the errors of `gymmesh_model.http1`, follow no redirects (the key would go to whoever
they name), send no cookies and bound the size of an answer.
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from gymmesh_model.http1 import Answer, Body, Client, Streamed, Target

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")


class Whole(Protocol):
    """An answer, read to its end."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, whatever its case."""

    @property
    def body(self) -> bytes:
        """All of it."""


class Live(Protocol):
    """An answer whose body is still coming."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, whatever its case."""

    @property
    def content_type(self) -> str:
        """In lower case, without parameters."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes; to be read once. Raises Http1Error."""

    async def read(self) -> bytes:
        """The rest of the body. Raises Http1Error."""


class Transport(Protocol):
    """Posts to endpoints. Made in the event loop, closed once."""

    def post(
        self, url: str, body: Body, headers: Mapping[str, str] | None
    ) -> Coroutine[Any, Any, Whole]:
        """The whole answer, whatever its status; the body may also be made when it is sent.

        Raises Http1Error.
        """

    def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AbstractAsyncContextManager[Live]:
        """The answer as it comes; leaving the block ends it. Raises Http1Error."""

    async def close(self) -> None:
        """Closes connections; calls in flight fail."""


def is_proxied(urls: Sequence[str]) -> bool:
    """Whether one of the URLs is reached through a proxy that the environment names."""
    proxies = urllib.request.getproxies()
    for url in urls:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Proxies are for hosts outside this machine.
        proxied = host not in _LOCAL and parts.scheme in proxies
        if proxied and not urllib.request.proxy_bypass(host):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Live:
    _answer: Streamed

    @property
    def status(self) -> int:
        return self._answer.head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.head.headers

    @property
    def content_type(self) -> str:
        return self._answer.head.content_type

    def pieces(self) -> AsyncIterator[bytes]:
        return self._answer

    async def read(self) -> bytes:
        return await self._answer.read()


@dataclass
class DirectTransport:
    """By the own client. headers: of every request."""

    headers: Mapping[str, str]
    client: Client
    _targets: dict[str, Target] = field(default_factory=dict)

    def post(
        self, url: str, body: Body, headers: Mapping[str, str] | None
    ) -> Coroutine[Any, Any, Answer]:
        """See Transport."""
        target = self._targets.get(url) or self.target(url)
        # Asking for an answer again is safe: sampling has no side effect.
        return self.client.ask(target, body, headers, resend=True)

    @asynccontextmanager
    async def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AsyncIterator[Live]:
        """See Transport."""
        target = self.target(url)
        async with await self.client.stream(target, body, headers) as answer:
            yield _Live(answer)

    async def close(self) -> None:
        """See Transport."""
        await self.client.close()

    def target(self, url: str) -> Target:
        """A URL, made ready once. Raises ValueError for what cannot be sent."""
        found = self._targets.get(url)
        if found is None:
            found = self._targets[url] = Target(url, self.headers)
        return found
