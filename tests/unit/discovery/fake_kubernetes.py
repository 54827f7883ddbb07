"""An API server that knows EndpointSlices alone, and answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

PATH = "/apis/discovery.k8s.io/v1/namespaces/lab/endpointslices"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeKubernetes:
    """Lists ``slices``, and sends watches what the test puts into their queues.

    ``wrong`` answers every request instead, when it is set.
    """

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.version = 7
        self.wrong: Answer | None = None
        self.requests: list[web.Request] = []
        self.watches: list[asyncio.Queue[Any]] = []
        self.url = ""
        self.page = 500

    def send(self, kind: str, what: dict[str, Any]) -> None:
        """An event for every watch that is open."""
        line = json.dumps({"type": kind, "object": what}).encode() + b"\n"
        for queue in self.watches:
            queue.put_nowait(line)

    def put(self, found: dict[str, Any], kind: str = "MODIFIED") -> None:
        """A slice that is new or different."""
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.slices[found["metadata"]["name"]] = found
        self.send(kind, found)

    def delete(self, name: str) -> None:
        """A slice that is gone."""
        self.version += 1
        found = self.slices.pop(name)
        found["metadata"]["resourceVersion"] = str(self.version)
        self.send("DELETED", found)

    def cut(self) -> None:
        """Ends every watch."""
        for queue in self.watches:
            queue.put_nowait(None)

    def lists(self) -> int:
        """How often everything was listed."""
        return sum(not {"watch", "continue"} & one.query.keys() for one in self.requests)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.wrong is not None:
            return await self.wrong(request)
        assert request.path == PATH
        if "watch" in request.query:
            return await self._watched(request)
        start = int(request.query.get("continue", "0"))
        end = start + self.page
        names = sorted(self.slices)
        metadata = {"resourceVersion": str(self.version)}
        if end < len(names):
            metadata["continue"] = str(end)
        items = [self.slices[name] for name in names[start:end]]
        return web.json_response({"metadata": metadata, "items": items})

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.watches.append(queue)
        try:
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                while (line := await queue.get()) is not None:
                    await response.write(line)
        except TimeoutError:
            pass
        finally:
            self.watches.remove(queue)
        return response


@asynccontextmanager
async def answering() -> AsyncIterator[FakeKubernetes]:
    """One that listens while the context is open."""
    fake = FakeKubernetes()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = "http://{}:{}".format(*runner.addresses[0])
    try:
        yield fake
    finally:
        fake.cut()
        await runner.cleanup()
