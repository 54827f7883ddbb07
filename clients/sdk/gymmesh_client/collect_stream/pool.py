"""The agents of a mesh: one stream to each instance, attempts spread over them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_client.collect.figures import AgentLoad
from gymmesh_client.collect_stream.book import EventSink, Key, StreamLimits
from gymmesh_client.collect_stream.stream import ASSUMED_CAPACITY, CollectStream

AGENT: Final = "gymmesh.agent.v1.AgentService"
_HELLO_S: Final = 10.0
_SERVING: Final = discovery_pb2.HEALTH_SERVING
# For so long, an instance whose stream broke is asked only when no other can be.
_AVOID_S: Final = 2.0
_AVOIDED: Final = 1e6  # busier than any other


class Directory(Protocol):
    """Finds agent services, as gymmesh_runtime.peers.PeerDirectory does."""

    async def pick(self, service: str, name: str) -> discovery_pb2.Instance:
        """A serving instance of a kind and name; MeshError when there is none."""
        ...

    def instances(self) -> Sequence[discovery_pb2.Instance]:
        """All known instances."""
        ...

    def serving(self, service: str, name: str) -> Sequence[discovery_pb2.Instance]:
        """Those of a kind and name that take calls; the same object until that changes."""
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
        #: When its last stream broke; None: none has, that anyone remembers.
        self.broke_at: float | None = None
        self._called = CalledAgent(self)
        self._collecting: dict[bool, CollectingAgent] = {}  # over its stream, by `held`

    def busyness(self) -> float:
        """What to choose instances by: 1 when it has no place left, far more while avoided."""
        busyness = self.calls / ASSUMED_CAPACITY
        stream = self.stream
        if stream is not None:
            if stream.broken is None:
                busyness += stream.busyness()
            else:
                self._drop()
        if self.broke_at is not None and self._avoided(self.broke_at):
            busyness += _AVOIDED
        return busyness

    def agent(self, limits: StreamLimits | None, *, held: bool) -> CalledAgent:
        """What runs attempts at it; over a stream, made anew when it broke, if it collects."""
        if not self.collects:
            return self._called
        stream = self.stream
        if stream is not None and stream.broken is not None:
            self._drop()
            stream = None
        if stream is None:
            stream = self.stream = CollectStream(self.peer, self.address, limits)
        agent = self._collecting.get(held)
        if agent is None:
            agent = self._collecting[held] = CollectingAgent(self, stream, held=held)
        return agent

    def _drop(self) -> None:
        """Its stream broke."""
        self.broke_at = time.monotonic()
        self.stream = None
        self._collecting = {}

    def _avoided(self, broke_at: float) -> bool:
        avoided = time.monotonic() - broke_at < _AVOID_S
        if not avoided:
            self.broke_at = None
        return avoided


class _Group(NamedTuple):
    """The agents of a name, as long as the directory lists the same.

    Attributes:
        listed: what the directory says; another list of it is news.
        direct: the peer for an instance in this process, which goes before all others.
        seats: the others.
    """

    listed: Sequence[discovery_pb2.Instance]
    direct: Any
    seats: list[_Seat]


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

    def push_RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, send: EventSink
    ) -> Coroutine[Any, Any, None]:
        """Run one attempt over the stream, as CollectStream.run does."""
        return self._stream.run(request, timeout_s=timeout, on_event=send, held=self._held)


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
        self._groups: dict[str, _Group] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._turn = 0

    async def connect(self, name: str, *, held: bool = False) -> Any:
        """The agent to run the next attempt at: an AgentPeer, maybe a CollectingAgent.

        With `held`, an agent keeps an attempt's events until `stored` says that its outcome is
        on disk; else until the outcome has come.

        Raises:
            MeshError: there is none of this name, or it cannot be reached.
        """
        group = self._groups.get(name)
        listed = self._directory.serving(AGENT, name)
        if group is None or group.listed is not listed:
            if not listed:
                listed = [await self._directory.pick(AGENT, name)]
            group = self._groups[name] = self._group(listed)
        if group.direct is not None:
            return group.direct
        seats = group.seats
        seat = seats[0] if len(seats) == 1 else _least_busy(seats)
        self._turn += 1
        seat.turn = self._turn
        if seat.collects is None:
            seat.collects = await self._offers(seat)
        return seat.agent(self._limits, held=held)

    def stored(self, rollout_id: str, attempt: int) -> None:
        """The outcome of an attempt is on disk: the agent need not keep it any more."""
        key: Key = (rollout_id, attempt)
        for seat in self._seats.values():
            if seat.stream is not None and seat.stream.stored(key):
                return

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

    def _group(self, listed: Sequence[discovery_pb2.Instance]) -> _Group:
        for one in listed:
            if is_direct(one):
                return _Group(listed, self._directory.peer(one), [])
        return _Group(listed, None, [self._seat(one) for one in listed])

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


def _least_busy(seats: Sequence[_Seat]) -> _Seat:
    """The seat to choose next; of those that are as busy, the one that was chosen first."""
    chosen, least = seats[0], math.inf
    for seat in seats:
        busyness = seat.busyness()
        if busyness < least or (busyness == least and seat.turn < chosen.turn):
            chosen, least = seat, busyness
    return chosen


def is_direct(instance: discovery_pb2.Instance) -> bool:
    """Whether an instance lives in this process."""
    return instance.address.startswith("direct:")


async def _ask(peer: Any) -> bool:
    about = await peer.GetAgent(agent_pb2.GetAgentRequest(), timeout=_HELLO_S)
    return bool(about.collect)
