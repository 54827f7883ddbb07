"""A server on bare sockets that does to each connection what a test's script says; a transport."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gymmesh_model.transport import HttpAnswer, TransportError
from gymmesh_model.transport.client import HttpTransport

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


@dataclass
class Link:
    """The server's side of one connection. index: how many were accepted before it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    index: int

    async def request(self) -> tuple[bytes, bytes]:
        """The next request, as head and body. Raises EOFError when there is none."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return head, await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None

    async def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Writes the pieces, each in a packet of its own as far as that can be had."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(pause)

    async def gone(self) -> None:
        """Waits until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """Breaks the connection, so that its other side gets an error and no end."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Link], Awaitable[None]]


def whole(body: bytes) -> bytes:
    """A plain answer."""
    return OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def hello(link: Link) -> None:
    """Answers every request, on one connection never twice in the same words."""
    for number in itertools.count():
        await link.request()
        await link.send(whole(b"hello %d" % number if number else b"hello"))


def sends(*pieces: bytes, pause: float = 0.0) -> Script:
    """Answers one request with these bytes and closes the connection."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(*pieces, pause=pause)

    return script


@dataclass
class Server:
    """What it has seen. links: all connections; done: how many of them are over."""

    url: str
    links: list[Link] = field(default_factory=list)
    over: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def all_gone(self) -> None:
        """Waits until every connection is over."""
        while self.over < len(self.links):
            self.changed.clear()
            await self.changed.wait()


@contextlib.asynccontextmanager
async def serving(
    script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Runs the script for each connection until the block ends."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer, len(served.links))
        served.links.append(link)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(link)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            served.over += 1
            served.changed.set()
            writer.close()

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    served = Server(f"{scheme}://{host}:{server.sockets[0].getsockname()[1]}/v1")
    try:
        yield served
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for link in served.links:
            link.reset()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def transport(
    headers: Mapping[str, str] | None = None, connect_timeout: float = 30.0, **options: Any
) -> AsyncIterator[HttpTransport]:
    """A transport, closed at the end of the block."""
    made = HttpTransport(headers or {}, connect_timeout, **options)
    try:
        yield made
    finally:
        await made.close()


async def settled(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds."""
    while not condition():  # noqa: ASYNC110  # nobody is notified of it
        await asyncio.sleep(0.001)


async def failure(made: HttpTransport, url: str, **options: Any) -> TransportError:
    """What a request fails with."""
    with pytest.raises(TransportError) as caught:
        await made.post(url, b"{}", **options)
    return caught.value


async def said(made: HttpTransport, url: str, body: bytes = b"{}") -> bytes:
    """The body of a request's answer."""
    answer: HttpAnswer = await made.post(url, body)
    return answer.body
