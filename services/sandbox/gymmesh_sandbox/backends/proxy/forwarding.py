"""HTTP/1.1 requests and answers through the proxy, parsed and written by h11.

Messages of both sides are parsed and written again. So the other side only receives messages that
both sides understand in the same way, and nothing after the one request reaches the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

import h11

from gymmesh_runtime.processes import write_to
from gymmesh_sandbox.backends.proxy.targets import ProxyTarget, RefusedError

_PIECE_BYTES: Final = 1 << 16
_HEAD_BYTES: Final = 32 << 10
_REFUSE_S: Final = 2.0
# Headers that are about one connection (RFC 9110, 7.6.1), and those for the proxy itself.
_OF_CONNECTION: Final = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"keep-alive",
        b"te",
        b"trailer",
        b"upgrade",
        b"http2-settings",
    )
)
_Header = tuple[bytes, bytes]


class NearConnection:
    """A program's connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def request(self) -> h11.Request:
        """The request's first line and headers. Raises RefusedError, and OSError at the end of
        the connection.
        """
        try:
            event = await _next(self.http, self.reader)
        except h11.RemoteProtocolError as error:
            raise RefusedError(error.error_status_hint, f"This is not HTTP: {error}.") from None
        if not isinstance(event, h11.Request):
            raise ConnectionResetError("closed before a request")
        if event.method == b"CONNECT" and not isinstance(
            await _next(self.http, self.reader), h11.EndOfMessage
        ):
            raise RefusedError(400, "A CONNECT request has a body.")
        return event

    async def refuse(self, refused: RefusedError) -> None:
        """Answers with a refusal."""
        body = f"{refused.line}\n".encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        # It has begun an answer; or, as uvloop says it, the program is gone.
        with contextlib.suppress(h11.LocalProtocolError, TimeoutError, RuntimeError):
            async with asyncio.timeout(_REFUSE_S):
                await self.send(h11.Response(status_code=refused.status, headers=headers))
                await self.send(h11.Data(data=body))
                await self.send(h11.EndOfMessage())
                # A connection that is closed with bytes unread is reset, and the answer lost.
                self.writer.write_eof()
                while await self.reader.read(_PIECE_BYTES):
                    pass

    async def tunnel(self) -> bytes:
        """Answers that a tunnel is open; returns what the program has already sent into it."""
        await self.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        return self.http.trailing_data[0]

    async def send(self, event: h11.Event) -> None:
        """Writes a part of the answer."""
        await _send(self.http, self.writer, event)


async def forward(
    near: NearConnection,
    request: h11.Request,
    target: ProxyTarget,
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    idle_s: float,
) -> None:
    """Forwards a request, and its answer back.

    If an answer breaks off, it is cut for the program as well. Raises TimeoutError if neither side
    sends for `idle_s` seconds.
    """
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_s) as idle:

        def moved() -> None:
            idle.reschedule(loop.time() + idle_s)

        head = h11.Request(
            method=request.method,
            target=target.path,
            headers=[
                (b"Host", target.authority.encode()),
                *(one for one in _end_to_end(request.headers) if one[0] != b"host"),
                (b"Connection", b"close"),
            ],
        )
        body = None
        try:
            await _send(http, far[1], head)
            body = asyncio.create_task(_send_body(near, http, far[1], moved))
            await _answer(near, http, far[0], moved)
        except h11.RemoteProtocolError:
            await near.refuse(RefusedError(502, f"{target.host} did not answer with valid HTTP."))
        except h11.LocalProtocolError as error:
            raise ConnectionResetError(f"the message cannot be forwarded: {error}") from error
        finally:
            if body is not None:
                body.cancel()
                await asyncio.gather(body, return_exceptions=True)


async def _send_body(
    near: NearConnection, http: h11.Connection, far: asyncio.StreamWriter, moved: Callable[[], None]
) -> None:
    """Forwards the request's body. A program that breaks off its body gets no answer."""
    try:
        while True:
            event = await _next(near.http, near.reader)
            moved()
            if not isinstance(event, h11.Data | h11.EndOfMessage):
                raise ConnectionResetError("the program has ended the connection")
            if isinstance(event, h11.EndOfMessage):
                await _send(http, far, h11.EndOfMessage(headers=_end_to_end(event.headers)))
                return
            await _send(http, far, event)
    except (OSError, h11.ProtocolError):
        far.close()


async def _answer(
    near: NearConnection, http: h11.Connection, far: asyncio.StreamReader, moved: Callable[[], None]
) -> None:
    """Forwards the server's answer."""
    while True:
        event = await _next(http, far)
        moved()
        if isinstance(event, h11.InformationalResponse):
            await near.send(event)
        elif isinstance(event, h11.Response):
            headers = [*_end_to_end(event.headers), (b"Connection", b"close")]
            answer = h11.Response(
                status_code=event.status_code, headers=headers, reason=event.reason
            )
            await near.send(answer)
        elif isinstance(event, h11.Data):
            await near.send(event)
        elif isinstance(event, h11.EndOfMessage):
            await near.send(h11.EndOfMessage(headers=_end_to_end(event.headers)))
            return
        else:
            raise h11.RemoteProtocolError("the server has closed the connection")


def _end_to_end(headers: Iterable[_Header]) -> list[_Header]:
    """The headers for the other end; names in lower case."""
    headers = list(headers)
    named = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    # Framing stays whatever the sender says of it: both sides have to agree on it.
    named -= {b"content-length", b"transfer-encoding", b"host"}
    return [one for one in headers if one[0] not in _OF_CONNECTION | named]


async def _next(
    http: h11.Connection, reader: asyncio.StreamReader
) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    while True:
        event = http.next_event()
        if event is not h11.NEED_DATA:
            return event
        http.receive_data(await reader.read(_PIECE_BYTES))


async def _send(http: h11.Connection, writer: asyncio.StreamWriter, event: h11.Event) -> None:
    data = http.send(event)
    if data:
        write_to(writer, data)
        await writer.drain()
