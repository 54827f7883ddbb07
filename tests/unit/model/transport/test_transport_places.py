"""Places for new connections: a limit on those that are created, not on those that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from gymmesh_model.transport.connector import CheckedConnector, Link, current_link
from tests.unit.model.transport.raw_server import settled

# More requests than there are places for new connections to one endpoint.
_MANY = 200
_BOUND_S = 30.0


class SlowNames(AbstractResolver):
    """Resolves every name to the loopback once it is free; counts who asks."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        await self.free.wait()
        return [
            ResolveResult(
                hostname=host,
                host="127.0.0.1",
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=0,
            )
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_kept_connection_is_used_while_all_places_are_taken() -> None:
    held = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/held":
            await held.wait()
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/{any}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://endpoint.test:{runner.addresses[0][1]}"
    names = SlowNames()
    connector = CheckedConnector(limit=0, resolver=names, use_dns_cache=False)

    async def ask(path: str, link: Link) -> str:
        current_link.set(link)
        async with session.get(url + path) as got:
            return await got.text()

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        names.free.set()
        first = asyncio.create_task(ask("/held", link := Link()))
        async with asyncio.timeout(_BOUND_S):
            await settled(lambda: link.transport is not None)
            names.free.clear()
            begun = names.asked
            others = [asyncio.create_task(ask("/a", Link())) for _ in range(_MANY)]
            await settled(lambda: names.asked - begun >= 128)
            held.set()
            assert await first == "ok"
            used = Link()
            assert await asyncio.create_task(ask("/b", used)) == "ok"
            assert used.kept
            assert names.asked - begun == 128
            names.free.set()
            assert set(await asyncio.gather(*others)) == {"ok"}
