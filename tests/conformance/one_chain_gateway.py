"""A capture gateway that knows one chain: each call hangs on the one before it.

It is what a first version of a gateway looks like, and an example of an adapter. It forwards Chat
Completions to the suite's endpoint, and keeps what went by.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from gymmesh_conformance.gateway import CaughtCall, Script, scripted_endpoint


@dataclass
class _Chain:
    """A rollout of such a gateway."""

    key: str = "key"
    url: str = ""
    calls: list[CaughtCall] = field(default_factory=list)

    async def finish(self) -> list[CaughtCall]:
        """The captured calls."""
        return self.calls


class OneChainGateway:
    """The adapter; `target` is not used, since it serves the gateway itself."""

    def __init__(self, target: str = "") -> None:
        self.target = target

    @asynccontextmanager
    async def rollout(self, script: Script, program: str) -> AsyncGenerator[_Chain]:
        """Serve the gateway for one rollout."""
        chain = _Chain()
        async with scripted_endpoint(script) as upstream, aiohttp.ClientSession() as client:

            async def forward(request: web.Request) -> web.Response:
                body = await request.read()
                url = f"{upstream}/chat/completions"
                async with client.post(
                    url, data=body, headers={"content-type": "application/json"}
                ) as got:
                    parent = len(chain.calls) - 1 if chain.calls else None
                    chain.calls.append(CaughtCall(parent=parent, is_trained=True))
                    content = await got.read()
                    return web.Response(body=content, content_type=got.content_type)

            application = web.Application()
            application.router.add_post("/v1/chat/completions", forward)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            chain.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            try:
                yield chain
            finally:
                await runner.cleanup()
