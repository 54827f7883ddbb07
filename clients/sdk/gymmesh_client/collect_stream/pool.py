"""The agents of a mesh: one stream to each instance, attempts spread over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_client.collect_stream.book import EventSink, Key, StreamLimits
from gymmesh_client.collect_stream.stream import ASSUMED_CAPACITY, CollectStream
from gymmesh_client.figures import AgentLoad

AGENT: Final = "gymmesh.agent.v1.AgentService"
_HELLO_S: Final = 10.0
_SERVING: Final = discovery_pb2.HEALTH_SERVING
# For so long, an instance whose stream broke is asked only when no other can be.
_AVOID_S: Final = 2.0


class Directory(Protocol):
    """Finds agent services, as gymmesh_runtime.peers.PeerDirectory does."""

    async def pick(self, service: str, name: str) -> discovery_pb2.Instance:
        """A serving instance of a kind and name; MeshError when there is none."""
        ...

    def instances(self) -> Sequence[discovery_pb2.Instance]:
        """All known instances."""
        ...

    def serving(self, service: str, name: str) -> Sequence[discovery_pb2.Instance]:
        """Those of a kind and name that take calls."""
        ...

    def peer(self, instance: discovery_pb2.Instance) -> Any:
        """The peer for an instance, with its RPCs as methods."""
        ...


class _Seat:
    """One agent instance: the stream to it, and what runs there besides."""

    def __init__(self, peer: Any, address: str) -> None:
        self.peer = peer
        self.address = address
        self.stream: CollectStream | None = None
        #: Whether it offers Collect; None: not known yet.
        self.collects: bool | None = None
        self.asking: asyncio.Task[bool] | None = None
        self.calls = 0  # RunRollout
        self.turn = 0  # when it was last chosen
        self.broke_at = -_AVOID_S

    def rank(self, now: float) -> tuple[bool, float, int]:
        """What to choose instances by; the lowest is the best."""
        self._look(now)
        busyness = 0.0 if self.stream is None else self.stream.busyness
        return now - self.broke_at < _AVOID_S, busyness + self.calls / ASSUMED_CAPACITY, self.turn

    def whole_stream(self, limits: StreamLimits | None) -> CollectStream:
        """The stream to it, made anew when it broke."""
        self._look(time.monotonic())
        if self.stream is None:
            self.stream = CollectStream(self.peer, self.address, limits)
        return self.stream

    def _look(self, now: float) -> None:
        if self.stream is not None and self.stream.broken is not None:
            self.broke_at = now
            self.stream = None


class CalledAgent:
    """An agent instance whose attempts are calls of their own."""

    def __init__(self, seat: _Seat) -> None:
        self._seat = seat

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        """Run one attempt over a call of its own."""
        self._seat.calls += 1
        try:
            async with aclosing(self._seat.peer.RunRollout(request, timeout=timeout)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._seat.calls -= 1

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        """Have a task's repeats judged together."""
        response: agent_pb2.JudgeGroupResponse = await self._seat.peer.JudgeGroup(
            request, timeout=timeout
        )
        return response


class CollectingAgent(CalledAgent):
    """An agent instance that runs attempts over a stream as well.

    Args:
        held: whether outcomes count as stored only when that is said.
    """

    def __init__(self, seat: _Seat, stream: CollectStream, *, held: bool) -> None:
        super().__init__(seat)
        self._stream = stream
        self._held = held

    async def push_RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, send: EventSink
    ) -> None:
        """Run one attempt over the stream, as CollectStream.run does."""
        await self._stream.run(request, timeout_s=timeout, on_event=send, held=self._held)


class AgentPool:
    """Finds agents by name: the least busy instance, over Collect where it offers that.

    An instance in this process is called directly, which is cheaper still, and so is one without
    Collect.

    Args:
        directory: knows the instances.
    """

    def __init__(self, directory: Directory, limits: StreamLimits | None = None) -> None:
        self._directory = directory
        self._limits = limits
        self._seats: dict[str, _Seat] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._turn = 0
        # The agents of each name among the instances that were last listed.

    async def connect(self, name: str, *, held: bool = False) -> Any:
        """The agent to run the next attempt at: an AgentPeer, maybe a CollectingAgent.

        With `held`, an agent keeps an attempt's events until `stored` says that its outcome is
        on disk; else until the outcome has come.

        Raises:
            MeshError: there is none of this name, or it cannot be reached.
        """
        instance = self._choose(name) or await self._directory.pick(AGENT, name)
        if is_direct(instance):
            return self._directory.peer(instance)
        seat = self._seat(instance)
        self._turn += 1
        seat.turn = self._turn
        if seat.collects is None:
            seat.collects = await self._offers(seat)
        if not seat.collects:
            return CalledAgent(seat)
        return CollectingAgent(seat, seat.whole_stream(self._limits), held=held)

    def stored(self, rollout_id: str, attempt: int) -> None:
        """The outcome of an attempt is on disk: the agent need not keep it any more."""
        key: Key = (rollout_id, attempt)
        for seat in self._seats.values():
            if seat.stream is not None:
                seat.stream.stored(key)

    def load(self) -> AgentLoad:
        """What the agents that are reached over Collect say together."""
        target, waiting, told = 0, 0, False
        for one in self._directory.instances():
            seat = self._seats.get(one.id)
            if one.service != AGENT or one.health != _SERVING or is_direct(one):
                continue
            stream = None if seat is None else seat.stream
            load = None if stream is None else stream.load
            if load is None:
                target += (stream.capacity if stream is not None else 0) or ASSUMED_CAPACITY
            else:
                told = True
                target += load.target
                waiting += load.waiting
        return AgentLoad(target, waiting) if told else AgentLoad()

    async def close(self) -> None:
        """End all streams; attempts in flight are cancelled."""
        for instance_id in list(self._seats):
            self._leave(instance_id)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _choose(self, name: str) -> discovery_pb2.Instance | None:
        """The least busy instance of a name, one in this process before all others."""
        named = self._directory.serving(AGENT, name)
        for one in named:
            if is_direct(one):
                return one
        if len(named) == 1:
            return named[0]
        now = time.monotonic()
        return min(named, key=lambda one: self._seat(one).rank(now), default=None)

    def _seat(self, instance: discovery_pb2.Instance) -> _Seat:
        seat = self._seats.get(instance.id)
        if seat is None or seat.address != instance.address:
            self._leave(instance.id)
            peer = self._directory.peer(instance)
            seat = self._seats[instance.id] = _Seat(peer, instance.address)
        return seat

    async def _offers(self, seat: _Seat) -> bool:
        """Asks an instance whether it offers Collect; all who want to know ask together."""
        if seat.asking is None:
            seat.asking = asyncio.create_task(_ask(seat.peer))
        try:
            # Many may wait for this answer, and any of them may give up.
            return await asyncio.shield(seat.asking)
        except Exception:
            seat.asking = None
            seat.broke_at = time.monotonic()
            raise

    def _leave(self, instance_id: str) -> None:
        seat = self._seats.pop(instance_id, None)
        if seat is None:
            return
        if seat.asking is not None:
            seat.asking.cancel()
        if seat.stream is not None:
            task = asyncio.create_task(seat.stream.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


def is_direct(instance: discovery_pb2.Instance) -> bool:
    """Whether an instance lives in this process."""
    return instance.address.startswith("direct:")


async def _ask(peer: Any) -> bool:
    about = await peer.GetAgent(agent_pb2.GetAgentRequest(), timeout=_HELLO_S)
    return bool(about.collect)
