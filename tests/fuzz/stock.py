"""What callers of a mesh know: its example tasks, tools, sessions and names."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import grpc

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from tests.fuzz.calls import ask
from tests.fuzz.mesh import OF_SERVICES, Mesh, Place

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
_SESSIONS: Final = 4
_RENEW_S: Final = 0.5
_MOST_TASKS: Final = 20


class Shop:
    """What is known of one environment. `sessions` are those that were opened last; some of them
    may be closed by what is fuzzed.
    """

    def __init__(self, place: Place, mesh: Mesh) -> None:
        self.place = place
        self.tasks: list[rollout_pb2.Task] = []
        self.tools: list[responses_pb2.FunctionTool] = []
        self.sessions: list[str] = []
        #: By which agents use a session over MCP, where that is offered.
        self.tokens: list[str] = []
        self._channel: Any = mesh.channel(place.address)
        self._metadata = mesh.metadata(OF_SERVICES)
        self._numbers = itertools.count()

    async def open(self) -> None:
        """Asks for the tasks and tools, and opens the sessions."""
        tasks = await self._ask(
            "ListTasks", resource_pb2.ListTasksRequest(), resource_pb2.ListTasksResponse
        )
        self.tasks = list(tasks.tasks)[:_MOST_TASKS]
        tools = await self._ask(
            "ListTools", resource_pb2.ListToolsRequest(), resource_pb2.ListToolsResponse
        )
        self.tools = [tool.function for tool in tools.tools]
        self.sessions[:] = [await self._session() for _ in range(_SESSIONS)]
        self.tokens = [await self._token(one) for one in self.sessions if self.place.mcp_url]

    async def renew(self) -> None:
        """Opens a session in place of the oldest one, which is closed."""
        old = self.sessions[0]
        new = await self._session()
        self.sessions[:] = [*self.sessions[1:], new]
        if self.place.mcp_url:
            self.tokens = [*self.tokens[1:], await self._token(new)]
        await self._ask(
            "CloseSession",
            resource_pb2.CloseSessionRequest(session_id=old),
            resource_pb2.CloseSessionResponse,
        )

    async def close(self) -> None:
        """Hangs up."""
        await self._channel.close()

    async def _session(self) -> str:
        number = next(self._numbers)
        request = resource_pb2.CreateSessionRequest(
            task=self.tasks[number % len(self.tasks)],
            request_id=f"stock-{id(self)}-{number}",
            seed=number,
        )
        opened = await self._ask("CreateSession", request, resource_pb2.CreateSessionResponse)
        return str(opened.session_id)

    async def _token(self, session: str) -> str:
        """A token for it. Raises aiohttp.ClientError."""
        url = self.place.mcp_url.removesuffix("/mcp") + "/session/tokens"
        headers = {"Authorization": f"Bearer {session}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, headers=headers) as reply,
        ):
            return str((await reply.json())["token"])

    async def _ask(self, method: str, request: Any, response: Any) -> Any:
        return await ask(self._channel, f"{RESOURCE}/{method}", request, response, self._metadata)


class Stock:
    """What is known of a mesh's environments, by name. Use as a context manager."""

    def __init__(self, mesh: Mesh) -> None:
        self.shops: Mapping[str, Shop] = {
            place.name: Shop(place, mesh) for place in mesh.of("environment")
        }
        self.tasks: list[rollout_pb2.Task] = []
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stock:
        for name, shop in self.shops.items():
            await shop.open()
            for task in shop.tasks:
                task.environment = name
            self.tasks += shop.tasks
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._renewing is not None
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        for shop in self.shops.values():
            await shop.close()

    async def _renew(self) -> None:
        for shop in itertools.cycle(self.shops.values()):
            await asyncio.sleep(_RENEW_S)
            try:
                await shop.renew()
            except (grpc.aio.AioRpcError, aiohttp.ClientError):
                continue  # as when all sessions are taken; the judge hears of what is wrong
