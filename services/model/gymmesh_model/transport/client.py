"""The transport over HTTP/1.1, by aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
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

MAX_HEAD: Final = 64 * 1024
"""Bytes of an answer's head, at most. aiohttp reads at most 128 headers."""

_CLOSE_SECONDS: Final = 5.0
# Bytes of a body that may be kept while its answer is awaited.
_SMALL_BODY: Final = 16 * 1024
# Answers that are remembered as ones that an endpoint gives to several requests.
_MOST_CONSTANT: Final = 4096

_Send = Callable[[aiohttp.ClientSession], Awaitable[aiohttp.ClientResponse]]


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


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
        self._constant: set[int] = set()
        self._in_use: set[Link] = set()
        self._closed = False

        def session(*, force_close: bool) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=CheckedConnector(
                    connect_timeout, limit=0, force_close=force_close, ssl=tls or True
                ),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_line_size=max_head,
                max_field_size=max_head,
            )

        self._kept = session(force_close=False)
        # For a request that must have a connection of its own.
        self._single = session(force_close=True)

    async def post(
        self, url: str, body: Body, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """See Transport.

        Sampling has no side effect, so a request may be sent twice. It is, once and on a connection
        of its own, when a kept connection fails before an answer begins (the other side may close
        it just as it is used again), and when it brings the body of an earlier answer: only a new
        connection can tell whether that is the answer, or a copy of another.
        """
        send = partial(self._send, "POST", url, body, headers)
        link = Link()
        try:
            answer = await self._whole(send, self._kept, link)
        except (ConnectionLost, ProtocolViolated):
            if not link.kept or link.begun:
                raise
            return await self._whole(send, self._single, Link())
        if not self._is_repeated(answer, link):
            return answer
        again = await self._whole(send, self._single, Link())
        if again.body == answer.body:
            # It came again on a connection of its own: it is a true answer.
            if len(self._constant) >= _MOST_CONSTANT:
                self._constant.clear()
            self._constant.add(hash(answer.body))
        return again

    async def get(self, url: str) -> HttpAnswer:
        """See Transport. On a connection of its own: every answer may be the same."""
        send = partial(self._send, "GET", url, None, None)
        return await self._whole(send, self._single, Link())

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[StreamedAnswer]:
        """See Transport.

        Always on a connection of its own: whether a kept one brings a copy of an earlier answer
        shows only at its end, when it has been handed on.
        """
        with self._exchange(Link()) as exchange:
            exchange.begin(await self._send("POST", url, body, headers, self._single))
            yield exchange

    async def close(self) -> None:
        self._closed = True
        broken = [link.broken() for link in self._in_use]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                # An answer whose connection aiohttp closes by itself would be waited for still.
                await asyncio.gather(*broken, return_exceptions=True)
                await self._kept.close()
                await self._single.close()

    def _send(
        self,
        method: str,
        url: str,
        body: Body | None,
        more: Mapping[str, str] | None,
        session: aiohttp.ClientSession,
    ) -> Awaitable[aiohttp.ClientResponse]:
        """Sends a request; gives the answer, as soon as its head is there.

        aiohttp keeps bytes until the answer is there, which may be long: a large body is handed
        over as an iterator, which is gone once it is sent, but costs a task.
        """
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = HttpTarget(url, self._headers)
        headers: Mapping[str, str] = target.headers(more)
        data: bytes | AsyncIterator[bytes] | None = body() if callable(body) else body
        if isinstance(data, bytes) and len(data) > _SMALL_BODY:
            headers = {**headers, "Content-Length": str(len(data))}
            data = _once(data)
        return session.request(
            method,
            target.url,
            data=data,
            headers=headers,
            proxy=target.proxy,
            allow_redirects=False,
        )

    async def _whole(self, send: _Send, session: aiohttp.ClientSession, link: Link) -> HttpAnswer:
        with self._exchange(link) as exchange:
            exchange.begin(await send(session))
            return HttpAnswer(exchange.status, exchange.headers, await exchange.read())

    def _exchange(self, link: Link) -> _HttpExchange:
        if self._closed:
            raise ConnectFailed("the client is closed")
        return _HttpExchange(link, self._in_use, self._bounds)

    def _is_repeated(self, answer: HttpAnswer, link: Link) -> bool:
        """Whether the answer may be a copy of an earlier one on its connection.

        An endpoint or proxy that sends an answer twice would have every later request on this
        connection answered by the answer to the one before, so it is not used again.
        """
        if not answer.body or link.history is None:
            return False
        known = hash(answer.body)
        if not link.history.add(known):
            return False
        link.abort()
        return answer.status == 200 and known not in self._constant


class _Bounds(msgspec.Struct, frozen=True):
    """connect_timeout: seconds. max_head, max_body: bytes of an answer."""

    connect_timeout: float
    max_head: int
    max_body: int


class _HttpExchange:
    """One request and its answer, a `StreamedAnswer` from `begin` on.

    The block that it is entered for sends the request. An answer that was not read to its end when
    the block is left takes its connection with it. in_use: the links of all exchanges.
    """

    status: int
    headers: Mapping[str, str]
    _response: aiohttp.ClientResponse

    def __init__(self, link: Link, in_use: set[Link], bounds: _Bounds) -> None:
        self._link = link
        self._in_use = in_use
        self._bounds = bounds
        self._ended = False  # whether the answer's end has been read

    def __enter__(self) -> _HttpExchange:
        self._in_use.add(self._link)
        self._token = current_link.set(self._link)
        return self

    def __exit__(self, kind: object, failure: BaseException | None, traceback: object) -> None:
        link = self._link
        self._in_use.discard(link)
        if not self._ended:
            # aiohttp alone would wait until what is still to be sent has been read.
            link.abort()
        if link.begun:
            if self._response.connection is not None:  # aiohttp releases it at the answer's end
                self._response.close()
            return
        current_link.reset(self._token)
        if isinstance(failure, aiohttp.ClientError | OSError):
            raise typed(failure, link, self._bounds.connect_timeout) from None

    def begin(self, response: aiohttp.ClientResponse) -> None:
        """The head of the answer is there. Raises TransportError for one that is not in order."""
        current_link.reset(self._token)
        self._link.begun = True
        self._response = response
        self.status = response.status
        self.headers = headers = response.headers
        if response.status < 200:
            raise ProtocolViolated(f"its status {response.status} is none of an answer")
        codings = headers.getall("Transfer-Encoding", None)
        if codings is not None and [coding.lower() for coding in codings] != ["chunked"]:
            raise ProtocolViolated("its Transfer-Encoding is not 'chunked'")
        if headers.get("Content-Encoding", "").lower() not in ("", "identity"):
            raise ProtocolViolated("it is compressed, which it was asked not to be")
        raw, bounds = response.raw_headers, self._bounds
        if len(b"".join(chain.from_iterable(raw))) + 4 * len(raw) > bounds.max_head:
            raise TooLarge(f"its head is larger than {bounds.max_head} bytes")
        if (response.content_length or 0) > bounds.max_body:
            raise TooLarge(f"it is larger than {bounds.max_body} bytes")

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
            if size > self._bounds.max_body:
                raise TooLarge(f"it is larger than {self._bounds.max_body} bytes")
            yield piece
        if self._is_cut_off():
            raise ConnectionLost("connection broke inside the answer")
        self._ended = True

    async def read(self) -> bytes:
        if "Content-Length" in self.headers:  # checked with the head
            try:
                body = await self._response.content.read()
            except (aiohttp.ClientError, OSError) as failure:
                raise typed(failure, self._link) from None
            self._ended = True
            return body
        return b"".join([piece async for piece in self.pieces()])

    def _is_cut_off(self) -> bool:
        """Whether the connection broke where its end should have been the answer's end."""
        said = self.headers
        if "Content-Length" in said or "Transfer-Encoding" in said or self._link.protocol is None:
            return False
        return isinstance(self._link.protocol.exception(), aiohttp.ClientOSError)
