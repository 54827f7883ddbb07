"""An HTTP server's connections, against callers that say nothing, and many of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gymmesh_runtime.serving.http_connections import HttpConnections


@asynccontextmanager
async def served(seconds: float, most: int) -> AsyncIterator[int]:
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here")

    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    connections = HttpConnections(runner, seconds, most)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await runner.cleanup()


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    said = await reader.read()
    writer.close()
    return said


async def test_callers_that_say_nothing_or_half_are_cut() -> None:
    async with served(0.3, 100) as port:
        for said in (
            b"",
            b"GET / HTTP/1.1\r\nHos",
            b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            async with asyncio.timeout(60):
                await reader.read()  # until the other side closes
            writer.close()


async def test_there_is_a_number_of_connections() -> None:
    async with served(600, 5) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await asyncio.sleep(0)
        refused, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            assert await refused.read() == b""
        writer.close()
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        for _ in range(6000):
            if (await ask(port)).endswith(b"here"):
                return
            await asyncio.sleep(0.01)
    raise AssertionError("the places of closed connections were not freed")
