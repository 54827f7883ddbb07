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
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.desk import CollectDesk
from gymmesh_agent.events import EventQueue, Send
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


class ScriptedAttempt:
    """Sends the events of a script, one by one; a Runnable of gymmesh_agent.collect."""

    def __init__(self, events: Sequence[pb.RolloutEvent], pause: Pause, send: Send) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waited_s = 0.0
        self._task = asyncio.create_task(self._run(events, pause, send))
        self._task.add_done_callback(self._ended)

    def stop(self) -> None:
        """Ends it without a terminal event."""
        self._task.cancel()

    async def _run(self, events: Sequence[pb.RolloutEvent], pause: Pause, send: Send) -> None:
        for event in events:
            wait = pause(event)
            if wait is not None:
                await asyncio.sleep(wait)
            room = send(event)
            if room is not None:
                await room

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.over.set_exception(task.exception())  # type: ignore[arg-type]  # not None
        else:
            self.over.set_result(None)


class CollectAgent:
    """The servicer: Collect, RunRollout and GetAgent over scripted attempts.

    `pause` says how long to wait before an event (None: not at all). `requests` are those
    started, `running` how many run.
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
        self.offers = offers
        self.desk = CollectDesk(self, config or CollectConfig(), "scripted-0")
        self._script = script
        self._pause = pause

    def start(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext, send: Send
    ) -> ScriptedAttempt:
        """Starts an attempt; a task without an environment is refused."""
        if not request.task.environment:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
                "task.environment is not set",
                metadata={"field": "task.environment"},
            )
        self.requests.append(request)
        self.contexts.append(context)
        self.running += 1
        attempt = ScriptedAttempt(self._script(request), self._pause, send)
        attempt.over.add_done_callback(self._ended)
        return attempt

    def _ended(self, over: object) -> None:
        self.running -= 1

    async def Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], context: CallContext
    ) -> AsyncIterator[agent_pb2.CollectResponse | bytes]:
        """Serves a collector."""
        if not self.offers:
            raise MeshError(errors_pb2.ERROR_REASON_NOT_OFFERED, "no Collect here")
        async with aclosing(self.desk.serve(requests)) as responses:
            async for response in responses:
                yield response

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext
    ) -> AsyncIterator[agent_pb2.RunRolloutResponse]:
        """Runs one attempt."""
        queue = EventQueue()
        attempt = self.start(request, context, queue.put)
        attempt.over.add_done_callback(lambda _: queue.close())
        try:
            while (event := await queue.next()) is not None:
                yield agent_pb2.RunRolloutResponse(event=event)
        finally:
            attempt.stop()

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
        await agent.desk.close()
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
        """Events come slowly, so that whoever kills it finds rollouts under way."""
        if event.sequence == 1:
            return None
        if event.sequence == 3:  # so that the first ones have left
            print("begun", flush=True)
        return 1.0

    agent = CollectAgent(pause=pause)
    async with serve_agent(agent, port):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
