"""Memory, fairness, and which agent gets the next rollout."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_client.collect_stream import AgentPool, CollectStream
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.integration.collect_stream.runs import (
    QUICK,
    Run,
    attempt_at,
    buffer_of,
    collecting,
    slow,
    until,
)
from tests.support.collecting import (
    CollectAgent,
    agent_at,
    ask,
    directory_of,
    five_events,
    serve_agent,
)
from tests.support.proxy import Proxy


async def test_a_slow_collector_slows_its_rollouts_and_fills_no_memory() -> None:
    deltas = 400

    def script(request: agent_pb2.RunRolloutRequest) -> list[pb.RolloutEvent]:
        first, *_, last = five_events(request)
        events = [first]
        for _ in range(deltas):
            event = pb.RolloutEvent(rollout_id=request.rollout_id, attempt=1, ignorable=True)
            event.output_delta.text = b"x" * 1000
            events.append(event)
        events.append(last)
        for number, event in enumerate(events, 1):
            event.sequence = number
        last.completed.events = len(events)
        return events

    config = CollectConfig(buffer_mb=0.05)
    agent = CollectAgent(script, config=config)
    async with collecting(agent, replace(QUICK, credit=50)) as (run, _):
        sizes = []
        open_ = asyncio.Event()

        def read(event: pb.RolloutEvent) -> None:
            sizes.append(buffer_of(agent).size)

        async def one(number: int) -> None:
            await run.stream.run(ask(number), timeout_s=60, on_event=read, held=True)
            await open_.wait()
            run.stream.stored((f"ro-{number}", 1))

        tasks = [asyncio.create_task(one(number)) for number in range(4)]
        await until(lambda: buffer_of(agent).size if agent.collectors._collectors else 0)
        open_.set()
        await asyncio.gather(*tasks)
        assert len(sizes) == 4 * (deltas + 2)
        # The bound, and an event or two of each rollout.
        assert max(sizes) < 0.05 * 2**20 + 4 * 2 * 1300


async def test_collectors_share_the_places() -> None:
    agent = CollectAgent(config=CollectConfig(capacity=4))
    agent.go.clear()

    def waiting() -> int:
        return sum(len(one.queue.waiting) for one in agent.collectors._collectors.values())

    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve_agent(agent))
        directory = await stack.enter_async_context(directory_of(f"127.0.0.1:{port}"))
        peer = directory.peer(directory.instances()[0])
        streams = [CollectStream(peer, "a", QUICK) for _ in range(2)]
        for stream in streams:
            stack.push_async_callback(stream.close)
        greedy, modest = Run(streams[0]), Run(streams[1])
        many = [asyncio.create_task(greedy.one(ask(number))) for number in range(60)]
        await until(lambda: agent.running == 4)
        few = [asyncio.create_task(modest.one(ask(1000 + number))) for number in range(4)]
        await until(lambda: waiting() == 60)  # all but those that run
        agent.go.set()
        await asyncio.gather(*many, *few)
        order = [one.rollout_id for one in agent.requests]
        assert max(order.index(f"ro-{1000 + number}") for number in range(4)) < 30


async def test_the_agent_says_how_busy_it_is() -> None:
    agent = CollectAgent(pause=slow(3600.0), config=CollectConfig(capacity=2))
    async with collecting(agent) as (run, _):
        tasks = [asyncio.create_task(run.one(ask(number))) for number in range(5)]
        await until(lambda: run.stream.load is not None and run.stream.load.waiting)
        assert run.stream.load is not None
        assert (run.stream.load.running, run.stream.load.target) == (2, 2)
        assert run.stream.capacity == 2
        assert run.stream.busyness() == 2.5
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_attempts_are_spread_over_instances_and_over_what_they_offer() -> None:
    with_, without = CollectAgent(pause=slow(0.02)), CollectAgent(offers=False)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(serve_agent(one)) for one in (with_, without)]
        both = await stack.enter_async_context(directory_of(*(f"127.0.0.1:{p}" for p in ports)))
        pool = AgentPool(both, QUICK)
        stack.push_async_callback(pool.close)
        outcomes = await asyncio.gather(
            *(attempt_at(pool, number) for number in range(20)), return_exceptions=False
        )
        assert all(isinstance(one, pb.Rollout) for one in outcomes)
        assert with_.requests
        assert without.requests
        assert len(with_.requests) + len(without.requests) == 20


async def test_an_instance_that_is_lost_is_left_for_another() -> None:
    agents = [CollectAgent(pause=slow(0.01)) for _ in range(2)]
    async with AsyncExitStack() as stack:
        proxies = []
        for agent in agents:
            port = await stack.enter_async_context(serve_agent(agent))
            proxies.append(await stack.enter_async_context(Proxy(port)))
        directory = await stack.enter_async_context(directory_of(*(p.address for p in proxies)))
        pool = AgentPool(directory, replace(QUICK, reconnect_s=2.0))
        stack.push_async_callback(pool.close)
        await asyncio.gather(*(attempt_at(pool, number) for number in range(8)))
        assert all(agent.requests for agent in agents)
        for agent in agents:
            agent.go.clear()
        running = [asyncio.create_task(attempt_at(pool, 100 + number)) for number in range(8)]
        await until(lambda: all(agent.running for agent in agents))
        await proxies[0].__aexit__()
        for agent in agents:
            agent.go.set()
        outcomes = await asyncio.gather(*running)
        lost = [one for one in outcomes if isinstance(one, FailedAttempt)]
        assert 0 < len(lost) < 8
        assert all(one.failure.retry_safe for one in lost)
        assert {one.failure.boundary for one in lost} == {pb.BOUNDARY_AGENT}
        again = await asyncio.gather(*(attempt_at(pool, 200 + number) for number in range(8)))
        assert all(isinstance(one, pb.Rollout) for one in again)


async def test_an_unknown_agent_is_said_so() -> None:
    directory = PeerDirectory()
    directory.upsert(agent_at("127.0.0.1:1", "other"))
    pool = AgentPool(directory)
    with pytest.raises(MeshError, match="SERVICE_NOT_FOUND"):
        await pool.connect("scripted")
    await pool.close()
    await directory.close()
