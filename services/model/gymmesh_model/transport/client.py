"""The transport over HTTP/1.1, by aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from itertools import chain
from typing import Final

import aiohttp
import msgspec

from gymmesh_model.transport.base import (
    MAX_BODY,
    Body,
    ConnectFailed,
    ConnectionLost,
    HttpAnswer,
    ProtocolViolated,
    StreamedAnswer,
    TooLarge,
)
from gymmesh_model.transport.causes import typed
from gymmesh_model.transport.connector import CheckedConnector, Link, current_link
from gymmesh_model.transport.target import HttpTarget

IS_FACE = True  # see tools/import_faces.py

MAX_HEAD: Final = 64 * 1024
"""The most bytes of an answer's head. aiohttp reads at most 128 headers."""

_CLOSE_SECONDS: Final = 5.0
# How long an answer that its reader has left may take to end, so that its connection is kept.
_END_SECONDS: Final = 1.0
# Bytes of a body that may be kept while its answer is awaited.
_SMALL_BODY: Final = 16 * 1024


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


class _Request(msgspec.Struct, frozen=True):
    """What is sent. more: headers of this request alone."""

    method: str
    url: str
    body: Body | None = None
    more: Mapping[str, str] | None = None


class HttpTransport:
    """A `Transport` over kept connections; made and used in one event loop.

    headers: of every request. connect_timeout: seconds for a connection, name and TLS included.
    max_body, max_head: bytes of an answer. tls: the context for https; by default one that checks
    certificate and name.

    The number of connections has no limit here: the model service limits its calls.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_timeout: float,
        *,
        max_body: int = MAX_BODY,
        max_head: int = MAX_HEAD,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._headers = headers
        self._bounds = _Bounds(connect_timeout, max_head, max_body)
        self._targets: dict[str, HttpTarget] = {}
        self._in_use: set[Link] = set()
        self._closed = False

        def session(*, force_close: bool) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=CheckedConnector(limit=0, force_close=force_close, ssl=tls or True),
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_line_size=max_head,
                max_field_size=max_head,
            )

        self._kept = session(force_close=False)
        self._single = session(force_close=True)  # a connection for each request

    async def post(
        self, url: str, body: Body, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See Transport."""
        return await self._whole(_Request("POST", url, body, headers))

    async def get(self, url: str) -> HttpAnswer:
        """See Transport."""
        return await self._whole(_Request("GET", url))

    def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> contextlib.AbstractAsyncContextManager[StreamedAnswer]:
        """See Transport."""
        return self._answer(_Request("POST", url, body, headers))

    async def close(self) -> None:
        self._closed = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                # An answer whose connection aiohttp closes by itself would be waited for still.
                broken = [link.broken() for link in self._in_use]
                await asyncio.gather(*broken, return_exceptions=True)
                await self._kept.close()
                await self._single.close()

    async def _whole(self, request: _Request) -> HttpAnswer:
        async with self._answer(request) as answer:
            return HttpAnswer(answer.status, answer.headers, await answer.read())

    @contextlib.asynccontextmanager
    async def _answer(self, request: _Request) -> AsyncIterator[_HttpAnswer]:
        """Sends a request; the answer is there as soon as its head is."""
        if self._closed:
            raise ConnectFailed("the client is closed")
        link, response = Link(), None
        self._in_use.add(link)
        try:
            response = await self._begin(request, link)
            yield _HttpAnswer(response, link, self._bounds)
        except BaseException:
            if response is None:
                link.abort()
            else:
                _close(response, link)
            raise
        finally:
            self._in_use.discard(link)
        if response.content.is_eof():
            _close(response, link)  # if the request is still being sent
        elif response.connection is not None:
            # A stream's last event comes a little before the stream's end, at which aiohttp
            # releases the connection.
            asyncio.get_running_loop().call_later(_END_SECONDS, _close, response, link)

    async def _begin(self, request: _Request, link: Link) -> aiohttp.ClientResponse:
        """Sends a request, twice where a kept connection fails before an answer begins.

        The other side may close it just as it is used again. Sampling has no side effect.
        """
        try:
            return await self._send(request, self._kept, link)
        except (ConnectionLost, ProtocolViolated):
            if not link.kept:
                raise
        return await self._send(request, self._single, link)

    async def _send(
        self, request: _Request, session: aiohttp.ClientSession, link: Link
    ) -> aiohttp.ClientResponse:
        """aiohttp keeps bytes until the answer is there, which may be long: a large body is handed
        over as an iterator, which is gone once it is sent, but costs a task.
        """
        target = self._targets.get(request.url)
        if target is None:
            target = self._targets[request.url] = HttpTarget(request.url, self._headers)
        headers: Mapping[str, str] = target.headers(request.more)
        body = request.body
        data: bytes | AsyncIterator[bytes] | None = body() if callable(body) else body
        if isinstance(data, bytes) and len(data) > _SMALL_BODY:
            headers = {**headers, "Content-Length": str(len(data))}
            data = _once(data)
        token = current_link.set(link)
        try:
            return await session.request(
                request.method,
                target.url,
                data=data,
                headers=headers,
                proxy=target.proxy,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as failure:
            raise typed(failure, link, self._bounds.connect_timeout) from None
        finally:
            current_link.reset(token)


def _close(response: aiohttp.ClientResponse, link: Link) -> None:
    """Closes the connection of an answer at once, unless the answer has ended and released it."""
    if response.connection is not None:
        link.abort()
        response.close()


class _Bounds(msgspec.Struct, frozen=True):
    """connect_timeout: seconds. max_head, max_body: bytes of an answer."""

    connect_timeout: float
    max_head: int
    max_body: int


class _HttpAnswer:
    """A `StreamedAnswer`. Raises TransportError for a head that is not in order."""

    def __init__(self, response: aiohttp.ClientResponse, link: Link, bounds: _Bounds) -> None:
        self._response = response
        self._link = link
        self._max_body = bounds.max_body
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        _check_head(response, bounds)

    @property
    def content_type(self) -> str:
        return self._response.content_type.lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        size = 0
        while True:
            try:
                piece = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as failure:
                raise typed(failure, self._link) from None
            if not piece:
                break
            size += len(piece)
            if size > self._max_body:
                raise TooLarge(f"the response is larger than {self._max_body} bytes")
            yield piece
        if self._is_cut_off():
            raise ConnectionLost("connection broke during the answer")

    async def read(self) -> bytes:
        if "Content-Length" not in self.headers:  # else its size was checked with the head
            return b"".join([piece async for piece in self.pieces()])
        try:
            return await self._response.content.read()
        except (aiohttp.ClientError, OSError) as failure:
            raise typed(failure, self._link) from None

    def _is_cut_off(self) -> bool:
        """Whether the connection broke where its end should have been the answer's end."""
        said = self.headers
        if "Content-Length" in said or "Transfer-Encoding" in said or self._link.protocol is None:
            return False
        return isinstance(self._link.protocol.exception(), aiohttp.ClientOSError)


def _check_head(response: aiohttp.ClientResponse, bounds: _Bounds) -> None:
    """Raises ProtocolViolated or TooLarge."""
    headers = response.headers
    if response.status < 200:
        raise ProtocolViolated(f"the response's status {response.status} is not a final status")
    codings = headers.getall("Transfer-Encoding", None)
    if codings is not None and [coding.lower() for coding in codings] != ["chunked"]:
        raise ProtocolViolated("the response's Transfer-Encoding is not 'chunked'")
    if headers.get("Content-Encoding", "").lower() not in ("", "identity"):
        raise ProtocolViolated(
            "the response is compressed, although the request asked for no compression"
        )
    raw = response.raw_headers
    if len(b"".join(chain.from_iterable(raw))) + 4 * len(raw) > bounds.max_head:
        raise TooLarge(f"the response's head is larger than {bounds.max_head} bytes")
    if (response.content_length or 0) > bounds.max_body:
        raise TooLarge(f"the response is larger than {bounds.max_body} bytes")
