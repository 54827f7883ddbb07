"""An agent that offers Collect and streams scripted events, served on a port of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.collect_stream.server import CollectServer
from gymmesh_agent.events import EventQueue, EventSink
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.wire.server import MeshServer
from tests.support.rollouts import answer, completed, make_events, verdict

AGENT = "gymmesh.agent.v1.AgentService"
Script = Callable[[agent_pb2.RunRolloutRequest], Sequence[pb.RolloutEvent]]
Pause = Callable[[pb.RolloutEvent], float | None]


def five_events(request: agent_pb2.RunRolloutRequest) -> list[pb.RolloutEvent]:
    """A rollout of five events: two answers, a verdict."""
    rollout_id = request.rollout_id
    return make_events(
        rollout_id,
        request.attempt or 1,
        answer(f"hello from {rollout_id} " * 8),
        answer(f"bye from {rollout_id}", "c2"),
        verdict(1.0),
        completed(),
    )


class CollectAgent:
    """The servicer: Collect, RunRollout and GetAgent over scripted rollouts.

    `pause` says how long to wait before an event (None: not at all). None but first events are
    sent while `go` is not set, as it is at first. `requests` are those started, `running` how
    many run.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script = five_events,
        *,
        pause: Pause = lambda event: None,
        config: CollectConfig | None = None,
        offers: bool = True,
    ) -> None:
        self.requests: list[agent_pb2.RunRolloutRequest] = []
        self.contexts: list[CallContext] = []
        self.running = 0
        self.go = asyncio.Event()
        self.go.set()
        self.offers = offers
        self.collectors = CollectServer(self, config or CollectConfig(), "scripted-0")
        self._script = script
        self._pause = pause

    async def run_rollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        sink: EventSink,
        waited_s: float = 0.0,
    ) -> None:
        """Runs an attempt; a task without an environment is refused."""
        if not request.task.environment:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
                "task.environment is not set",
                metadata={"field": "task.environment"},
            )
        self.requests.append(request)
        self.contexts.append(context)
        self.running += 1
        try:
            for event in self._script(request):
                wait = self._pause(event)
                if wait is not None:
                    await asyncio.sleep(wait)
                if event.sequence > 1:
                    await self.go.wait()
                room = sink(event)
                if room is not None:
                    await room.wait()
        finally:
            self.running -= 1

    async def Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], context: CallContext
    ) -> AsyncIterator[agent_pb2.CollectResponse]:
        """Serves a collector."""
        if not self.offers:
            raise MeshError(errors_pb2.ERROR_REASON_NOT_OFFERED, "no Collect here")
        async with aclosing(self.collectors.serve(requests)) as responses:
            async for response in responses:
                yield response

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        """Runs one attempt."""
        queue = EventQueue()
        running = asyncio.create_task(self.run_rollout(request, context, queue.put))
        running.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.next()) is not None:
                yield agent_pb2.RunRolloutResponse(event=event)
            await running
        finally:
            running.cancel()

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, context: CallContext
    ) -> agent_pb2.JudgeGroupResponse:
        """Judges no groups."""
        raise MeshError(errors_pb2.ERROR_REASON_NOT_OFFERED, "judges no groups")

    async def GetAgent(self, request: Any, context: CallContext) -> agent_pb2.GetAgentResponse:
        """Says what it is."""
        return agent_pb2.GetAgentResponse(
            name=self.name,
            collect=self.offers,
            instance_id="scripted-0",
            contract_version=CONTRACT_VERSION,
        )


@asynccontextmanager
async def serve_agent(agent: Any, port: int = 0) -> AsyncIterator[int]:
    """Serves an agent by gRPC; gives the port."""
    server = MeshServer([Binding(AGENT, agent)], mux=False)
    try:
        yield await server.start("127.0.0.1", port)
    finally:
        await agent.collectors.close()
        await server.stop(0)


@asynccontextmanager
async def directory_of(*addresses: str, name: str = "scripted") -> AsyncIterator[PeerDirectory]:
    """A directory with agents at these addresses, called by plain gRPC."""
    directory = PeerDirectory(transport="plain")
    for address in addresses:
        directory.upsert(agent_at(address, name))
    try:
        yield directory
    finally:
        await directory.close()


def agent_at(address: str, name: str = "scripted") -> discovery_pb2.Instance:
    """An agent instance at an address."""
    return discovery_pb2.Instance(
        id=f"{name}@{address}",
        service=AGENT,
        name=name,
        address=address,
        health=discovery_pb2.HEALTH_SERVING,
    )


def ask(number: int, attempt: int = 1, **task: Any) -> agent_pb2.RunRolloutRequest:
    """A request for a numbered rollout."""
    fields = {"task_id": f"t-{number}", "environment": "math", **task}
    return agent_pb2.RunRolloutRequest(
        task=pb.Task(**fields), rollout_id=f"ro-{number}", attempt=attempt
    )


async def _main(port: int) -> None:
    """Serves until it is killed; says so on standard output once it does."""

    def pause(event: pb.RolloutEvent) -> float | None:
        """First attempts stop midway, so that a kill finds rollouts under way."""
        return 3600.0 if event.attempt == 1 and event.sequence > 1 else None

    agent = CollectAgent(pause=pause)
    async with serve_agent(agent, port):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
