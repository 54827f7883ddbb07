"""The agents of a mesh: one stream to each instance, attempts spread over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_client.agents import AGENT, AgentLoad, AgentPeer, EventSink, StreamingAgent
from gymmesh_client.collect_stream.connection import StreamLimits
from gymmesh_client.collect_stream.stream import ASSUMED_CAPACITY, CollectStream
from gymmesh_runtime.peers import PeerDirectory

_HELLO_S: Final = 10.0
# For so long, an instance whose stream broke is asked only when no other can be.
_AVOID_S: Final = 2.0
_AVOIDED: Final = 1e6  # busier than any other


@dataclass(slots=True, eq=False)
class AgentInUse:
    """One agent instance: the stream to it, and the attempts that run outside the stream.

    Attributes:
        peer: the RPCs of the instance.
        address: the instance's address.
        limits: the limits of the stream to the instance.
        collects: whether the instance offers Collect; None: not known yet.
        stream: the current stream to the instance, if any.
        calls: the attempts that run by RunRollout.
        chosen: when the instance was last chosen, as an increasing number.
        broke_at: when the last stream broke; None: no stream broke recently.
    """

    peer: Any
    address: str
    limits: StreamLimits | None = None
    collects: bool | None = None
    stream: CollectStream | None = None
    calls: int = 0
    chosen: int = 0
    broke_at: float | None = None
    _asking: asyncio.Future[agent_pb2.GetAgentResponse] | None = None

    def busyness(self) -> float:
        """What to choose instances by: 1 when it has no place left, far more while avoided."""
        busyness = self.calls / ASSUMED_CAPACITY
        stream = self._unbroken()
        if stream is not None:
            busyness += stream.busyness()
        if self.broke_at is not None and time.monotonic() - self.broke_at < _AVOID_S:
            busyness += _AVOIDED
        return busyness

    def open_stream(self) -> CollectStream:
        """The stream to it, made anew when the last one broke."""
        stream = self._unbroken()
        if stream is None:
            stream = self.stream = CollectStream(self.peer, self.address, self.limits)
        return stream

    async def offers_collect(self) -> bool:
        """Whether it offers Collect; all that want to know ask together. Raises MeshError."""
        if self.collects is None:
            if self._asking is None:
                call = self.peer.GetAgent(agent_pb2.GetAgentRequest(), timeout=_HELLO_S)
                self._asking = asyncio.ensure_future(call)
            try:
                # Many may wait for this answer, and any of them may give up.
                self.collects = (await asyncio.shield(self._asking)).collect
            except Exception:
                self._asking = None
                self.broke_at = time.monotonic()
                raise
        return self.collects

    async def close(self) -> None:
        """End the stream to it; attempts in flight are cancelled."""
        if self._asking is not None:
            self._asking.cancel()
        if self.stream is not None:
            await self.stream.close()

    def _unbroken(self) -> CollectStream | None:
        if self.stream is not None and self.stream.broken is not None:
            self.broke_at = time.monotonic()
            self.stream = None
        return self.stream


class CalledAgent(StreamingAgent):
    """An agent instance whose attempts are calls of their own."""

    def __init__(self, instance: AgentInUse) -> None:
        super().__init__(instance.peer)
        self._instance = instance

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Run one attempt by RunRollout."""
        self._instance.calls += 1
        try:
            await super().run_rollout(request, timeout=timeout, sink=sink)
        finally:
            self._instance.calls -= 1


class CollectingAgent(CalledAgent):
    """An agent instance that runs attempts over a stream; `held` as for `AgentPool.connect`."""

    def __init__(self, instance: AgentInUse, *, held: bool) -> None:
        super().__init__(instance)
        self._held = held

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Run one attempt over the stream, as CollectStream.run does."""
        stream = self._instance.open_stream()
        await stream.run(request, timeout_s=timeout, on_event=sink, held=self._held)


class AgentPool:
    """Finds agents by name: the least busy instance, over Collect where it offers that.

    Args:
        directory: knows the instances.
        in_process: the agents in this process by name, which go before all others.
    """

    def __init__(
        self,
        directory: PeerDirectory,
        limits: StreamLimits | None = None,
        *,
        in_process: Mapping[str, AgentPeer] | None = None,
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._in_process = in_process or {}
        self._instances: dict[str, AgentInUse] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._turn = 0

    async def connect(self, name: str, *, held: bool = False) -> AgentPeer:
        """The agent to run the next attempt at.

        With `held`, an agent keeps an attempt's events until `stored` says that its outcome is
        on disk; else until the outcome has come. Raises MeshError.
        """
        agent = self._in_process.get(name)
        if agent is not None:
            return agent
        found = self._directory.serving(AGENT, name)
        if not found:
            found = [await self._directory.pick(AGENT, name)]
        # An agent in this process goes before all others.
        near = [one for one in found if is_direct(one)] or found
        instances = [self._instance(one) for one in near]
        instance = instances[0] if len(instances) == 1 else least_busy(instances)
        self._turn += 1
        instance.chosen = self._turn
        if instance.collects or await instance.offers_collect():
            return CollectingAgent(instance, held=held)
        return CalledAgent(instance)

    def stored(self, rollout_id: str, attempt: int) -> None:
        """The outcome of an attempt is on disk: the agent need not keep it any more."""
        for instance in self._instances.values():
            if instance.stream is not None and instance.stream.stored((rollout_id, attempt)):
                return

    def load(self) -> AgentLoad:
        """What the agents that are reached over Collect say together."""
        target, waiting, is_known = 0, 0, False
        for one in self._directory.instances():
            serves = one.service == AGENT and one.health == discovery_pb2.HEALTH_SERVING
            if not serves or is_direct(one):
                continue
            instance = self._instances.get(one.id)
            stream = None if instance is None else instance.stream
            load = None if stream is None else stream.load
            if load is not None:
                is_known = True
                target += load.target
                waiting += load.waiting
            else:
                target += (stream.capacity if stream is not None else 0) or ASSUMED_CAPACITY
        return AgentLoad(target, waiting) if is_known else AgentLoad()

    async def close(self) -> None:
        """End all streams; attempts in flight are cancelled."""
        for instance_id in list(self._instances):
            self._leave(instance_id)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _instance(self, found: discovery_pb2.Instance) -> AgentInUse:
        instance = self._instances.get(found.id)
        if instance is None or instance.address != found.address:
            self._leave(found.id)
            peer = self._directory.peer(found)
            # One in this process is called, which costs less than a stream.
            collects = False if is_direct(found) else None
            instance = AgentInUse(peer, found.address, self._limits, collects)
            self._instances[found.id] = instance
        return instance

    def _leave(self, instance_id: str) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            task = asyncio.create_task(instance.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


def least_busy(instances: Sequence[AgentInUse]) -> AgentInUse:
    """The instance to choose next; of those that are as busy, the one that was chosen first."""
    return min(instances, key=lambda one: (one.busyness(), one.chosen))


def is_direct(instance: discovery_pb2.Instance) -> bool:
    """Whether an instance lives in this process."""
    return instance.address.startswith("direct:")
