"""How a collector reaches an agent service: one protocol, and what implements it.

InProcessAgent                  the service is in this process: its events are handed over
StreamingAgent                  a RunRollout call for each attempt
collect_stream.CollectingAgent  one Collect stream for all attempts at an instance
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import methods_of

AGENT: Final = "gymmesh.agent.v1.AgentService"

EventSink = Callable[[pb.RolloutEvent], None]
"""Takes an attempt's next event, which is not changed any more and may be kept. What it raises
ends the attempt, and is raised by `run_rollout`."""


@dataclass(frozen=True, slots=True)
class AgentLoad:
    """The load that all agents together report for this collector's rollouts.

    Attributes:
        target: the maximum number of rollouts that should run at once; None: unknown.
        waiting: rollouts that wait in the agents' queues.
    """

    target: int | None = None
    waiting: int = 0


class GroupJudge(Protocol):
    """The RPC by which an agent service judges groups."""

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        """Have the repeats of a task judged together; MeshError when that fails."""
        ...


class AgentPeer(GroupJudge, Protocol):
    """What a collector needs of an agent service."""

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Run an attempt; its events go to `sink`. Raises MeshError when the call breaks."""
        ...


AgentConnector = Callable[[str], Awaitable[AgentPeer]]
"""Finds the agent of a name; MeshError when there is none."""


class RpcPeer(GroupJudge, Protocol):
    """The RPCs of an agent service that a StreamingAgent calls; each raises MeshError."""

    def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        """Streams an attempt's events."""
        ...


class StreamingAgent:
    """An agent service at which each attempt is a separate RunRollout call."""

    def __init__(self, peer: RpcPeer) -> None:
        self._peer = peer

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Run an attempt by RunRollout."""
        async with aclosing(self._peer.RunRollout(request, timeout=timeout)) as responses:
            async for response in responses:
                sink(response.event)

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        """Have the repeats of a task judged together."""
        return await self._peer.JudgeGroup(request, timeout=timeout)


class AgentServicer(Protocol):
    """What an InProcessAgent calls of an agent service."""

    async def run_rollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        sink: Callable[[pb.RolloutEvent], Any],
    ) -> None:
        """Run an attempt; its events go to `sink`, which raises nothing."""
        ...

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, context: CallContext
    ) -> agent_pb2.JudgeGroupResponse:
        """Have the repeats of a task judged together."""
        ...


class InProcessAgent:
    """An agent service in this process. Its calls are checked, limited and counted as usual."""

    def __init__(self, service: AgentServicer) -> None:
        methods = methods_of(AGENT)
        self._run = BoundMethod(methods["RunRollout"], service.run_rollout)
        self._judge = BoundMethod(methods["JudgeGroup"], service.JudgeGroup)

    async def run_rollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float, sink: EventSink
    ) -> None:
        """Run an attempt by the service's `run_rollout`."""
        problems: list[Exception] = []

        def take(event: pb.RolloutEvent) -> None:
            if not problems:
                try:
                    sink(event)
                except Exception as problem:
                    problems.append(problem)  # no affair of the agent's

        await self._run.call(request, timeout, sink=take)
        if problems:
            raise problems.pop()

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, *, timeout: float
    ) -> agent_pb2.JudgeGroupResponse:
        """Have the repeats of a task judged together."""
        response: agent_pb2.JudgeGroupResponse = await self._judge.call(request, timeout)
        return response
