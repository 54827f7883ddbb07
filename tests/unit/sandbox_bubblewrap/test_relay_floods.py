"""A program that opens many connections to its relay can still make its next call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeAlias

from gymmesh_sandbox.backends.relay import Relay

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\n\r\n"
MOST = 8


class Service:
    """Answers whole requests, once it may, and ends the connections of those that are wrong."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if b"WRONG" not in head:
                await self.may_answer.wait()
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relayed(service: Service) -> AsyncGenerator[int]:
    """The port of a relay to a service."""
    async with await asyncio.start_server(service.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        relay = Relay(lambda: f"127.0.0.1:{port}", most_connections=MOST)
        listening = socket.create_server(("127.0.0.1", 0))
        await relay.open(listening)
        try:
            yield listening.getsockname()[1]
        finally:
            await relay.close()


async def sending(stack: AsyncExitStack, port: int, data: bytes) -> Streams:
    """A connection on which this was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    writer.write(data)
    return reader, writer


async def test_half_requests_go_first_the_oldest_before_others() -> None:
    service = Service()
    async with asyncio.timeout(60), relayed(service) as port, AsyncExitStack() as stack:
        early, _ = await sending(stack, port, HEAD)
        while not service.asked:  # noqa: ASYNC110 (a socket has no event for it)
            await asyncio.sleep(0.005)
        halves = [await sending(stack, port, half) for half in (b"", HEAD[:-1], HEAD[:9]) * 20]
        later, _ = await sending(stack, port, HEAD)
        while service.asked < 2:  # noqa: ASYNC110 (a socket has no event for it)
            await asyncio.sleep(0.005)
        service.may_answer.set()
        assert await later.readline() == b"HTTP/1.1 200 OK\r\n"
        assert await early.readline() == b"HTTP/1.1 200 OK\r\n"
        assert await halves[0][0].read() == b""


async def test_a_head_that_comes_in_pieces_is_whole() -> None:
    service = Service()
    async with asyncio.timeout(60), relayed(service) as port, AsyncExitStack() as stack:
        reader, writer = await sending(stack, port, HEAD[:-3])
        await asyncio.sleep(0)
        for piece in (HEAD[-3:-2], HEAD[-2:]):
            writer.write(piece)
            await asyncio.sleep(0.02)
        while not service.asked:  # noqa: ASYNC110 (a socket has no event for it)
            await asyncio.sleep(0.005)
        for _ in range(3 * MOST):
            await sending(stack, port, b"")
        service.may_answer.set()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_what_the_service_has_ended_is_no_call() -> None:
    """The program keeps its ends of refused connections open."""
    service = Service()
    service.may_answer.set()
    async with asyncio.timeout(60), relayed(service) as port, AsyncExitStack() as stack:
        for _ in range(3 * MOST):
            reader, _ = await sending(stack, port, b"GET /WRONG HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
        reader, _ = await sending(stack, port, HEAD)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"


async def test_calls_under_way_are_not_closed_for_further_ones() -> None:
    service = Service()
    async with asyncio.timeout(60), relayed(service) as port, AsyncExitStack() as stack:
        calls = [await sending(stack, port, HEAD) for _ in range(MOST)]
        while service.asked < MOST:  # noqa: ASYNC110 (a socket has no event for it)
            await asyncio.sleep(0.005)
        further, _ = await sending(stack, port, HEAD)
        with suppress(ConnectionError):
            assert await further.read() == b""
        service.may_answer.set()
        for reader, _ in calls:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
