"""Rollouts collected over one stream from an agent that can be hurt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import EventListener, run_attempt
from gymmesh_client.collect_stream import AgentPool, CollectStream, StreamLimits
from gymmesh_client.rows import FailedAttempt
from tests.support.collecting import (
    CollectAgent,
    ask,
    directory_of,
    five_events,
    serve_agent,
)
from tests.support.proxy import Proxy

QUICK = StreamLimits(backoff_s=0.01, backoff_cap_s=0.05, reconnect_s=60.0, acknowledge_s=0.01)
BOUND_S = 120.0


class Run:
    """A collector of scripted rollouts: what came, by rollout id and attempt."""

    def __init__(self, stream: CollectStream) -> None:
        self.stream = stream
        self.came: dict[tuple[str, int], list[bytes]] = {}

    async def one(
        self, request: agent_pb2.RunRolloutRequest, *, timeout_s: float = BOUND_S, held: bool = True
    ) -> None:
        """Run one to its end; its outcome counts as stored then."""
        key = (request.rollout_id, request.attempt)
        events = self.came.setdefault(key, [])
        await self.stream.run(
            request,
            timeout_s=timeout_s,
            on_event=lambda event: events.append(event.SerializeToString()),
            held=held,
        )
        self.stream.stored(key)

    def kinds(self, request: agent_pb2.RunRolloutRequest) -> list[str]:
        """The kinds of the events that came of a rollout."""
        came = self.came[request.rollout_id, request.attempt]
        return [str(pb.RolloutEvent.FromString(one).WhichOneof("event")) for one in came]


@asynccontextmanager
async def collecting(
    agent: CollectAgent, limits: StreamLimits = QUICK, cut_after: Callable[[], int] | None = None
) -> AsyncIterator[tuple[Run, Proxy]]:
    """An agent served, a proxy before it, and a collector."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve_agent(agent))
        proxy = await stack.enter_async_context(Proxy(port, cut_after))
        directory = await stack.enter_async_context(directory_of(proxy.address))
        stream = CollectStream(directory.peer(directory.instances()[0]), proxy.address, limits)
        stack.push_async_callback(stream.close)
        async with asyncio.timeout(BOUND_S * 2):
            yield Run(stream), proxy


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


def exact(request: agent_pb2.RunRolloutRequest) -> list[bytes]:
    return [event.SerializeToString() for event in five_events(request)]


def slow(seconds: float) -> Callable[[pb.RolloutEvent], float | None]:
    return lambda event: seconds if event.sequence > 1 else None


def buffer_of(agent: CollectAgent) -> Any:
    (collector,) = agent.collectors._collectors.values()
    return collector.stream.buffer


async def attempt_at(
    pool: AgentPool, number: int, attempt: int = 1, on_event: EventListener | None = None
) -> pb.Rollout | FailedAttempt:
    request = ask(number, attempt, agent="scripted")
    outcome = await run_attempt(
        pool.connect, request, repeat_index=0, timeout_s=BOUND_S, on_event=on_event
    )
    pool.stored(request.rollout_id, request.attempt)
    return outcome
