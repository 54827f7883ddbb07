"""One agent with its peers, over the direct path or over gRPC on ports of the system's choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AGENT_SERVICE, AgentService
from gymmesh_responses import params_from_json
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.service import Service
from gymmesh_runtime.wire.server import MeshServer
from tests.unit.agent.servicers import ScriptedModel, TinyEnvironment
from tests.unit.agent.streams import check_law, check_requests

MODEL = "gymmesh.model.v1.ModelService"
RESOURCE = "gymmesh.resource.v1.ResourceService"
VERIFY = "gymmesh.verify.v1.VerifyService"
SANDBOX = "gymmesh.sandbox.v1.SandboxService"
BOUND_S = 120.0


@dataclass
class Mesh:
    """A running agent and those it calls."""

    service: AgentService
    agent: Any
    environment: TinyEnvironment
    models: Mapping[str, ScriptedModel]

    @property
    def model(self) -> ScriptedModel:
        return self.models["policy"]

    async def run(
        self, request: agent_pb2.RunRolloutRequest | None = None, *, timeout: float = BOUND_S
    ) -> list[rollout_pb2.RolloutEvent]:
        """The events of one attempt, the laws checked and the session closed."""
        request = request or ask()
        before = request.SerializeToString(deterministic=True)
        stream = self.agent.RunRollout(request, timeout=timeout)
        async with asyncio.timeout(BOUND_S), aclosing(stream) as responses:
            events = [response.event async for response in responses]
        check_law(events, request.rollout_id, request.attempt or 1)
        check_requests(events, [one for m in self.models.values() for one in m.requests])
        assert request.SerializeToString(deterministic=True) == before
        await self.settled()
        return events

    async def settled(self) -> None:
        """Wait until no session is open; fails when one stays open."""
        service = self.service
        await until(lambda: not (self.environment.open or service._tasks or service._running))


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fails when it does not within 30 s."""
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 (conditions of servicers have no event)
            await asyncio.sleep(0.005)


def ask(**options: Any) -> agent_pb2.RunRolloutRequest:
    """A request with a small task; keywords are RolloutOptions."""
    task = rollout_pb2.Task(
        task_id="t1",
        environment="tiny",
        params=params_from_json({"input": "2+2?", "temperature": 0.5}),
        payload_json=b'{"expected": 4}',
        seed=11,
    )
    return agent_pb2.RunRolloutRequest(
        task=task, rollout_id="r1", attempt=1, options=agent_pb2.RolloutOptions(**options)
    )


@asynccontextmanager
async def running(
    path: str,
    environment: TinyEnvironment,
    models: Mapping[str, ScriptedModel],
    config: AgentConfig | None = None,
    sandboxes: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[Mesh]:
    """Everything up, over `path`: "direct", "grpc" or "mux". `sandboxes`: services by name."""
    async with AsyncExitStack() as stack:
        directory = PeerDirectory(transport="auto" if path == "mux" else "plain")
        stack.push_async_callback(directory.close)
        for name, model in models.items():
            await _add(stack, directory, path, MODEL, name, {MODEL: model})
        peers = {RESOURCE: environment, VERIFY: environment}
        await _add(stack, directory, path, RESOURCE, "tiny", peers)
        for name, boxes in sandboxes.items():
            await _add(stack, directory, path, SANDBOX, name, {SANDBOX: boxes})
        service = AgentService(config or AgentConfig(), "tool_loop", "tool_loop-0")
        served: Service = service  # the type checker holds it to the runtime's protocol
        await service.open(directory)
        stack.push_async_callback(service.close)
        instance = await _add(
            stack, directory, path, AGENT_SERVICE, "tool_loop", served.servicers()
        )
        yield Mesh(service, directory.peer(instance), environment, models)


async def _add(
    stack: AsyncExitStack,
    directory: PeerDirectory,
    path: str,
    kind: str,
    name: str,
    servicers: Mapping[str, object],
) -> discovery_pb2.Instance:
    instance = discovery_pb2.Instance(
        id=f"{name}-0", service=kind, name=name, health=discovery_pb2.HEALTH_SERVING
    )
    if path == "direct":
        directory.add_direct(instance, servicers)
        return instance
    server = MeshServer(Binding(service, one) for service, one in servicers.items())
    instance.address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    stack.push_async_callback(server.stop, 0)
    directory.upsert(instance)
    return instance
