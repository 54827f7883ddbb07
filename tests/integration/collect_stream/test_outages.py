"""Connections that break, and agents that are lost."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_client.collect_stream import AgentPool, CollectStream
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime.errors import MeshError, from_status
from tests.integration.collect_stream.runs import (
    BOUND_S,
    QUICK,
    Run,
    attempt_at,
    buffer_of,
    collecting,
    exact,
    slow,
    until,
)
from tests.support.collecting import (
    CollectAgent,
    ask,
    directory_of,
    serve_agent,
)
from tests.support.ports import free_port
from tests.support.proxy import Proxy


async def test_rollouts_go_on_while_the_collector_is_away() -> None:
    agent = CollectAgent(pause=slow(0.1))
    async with collecting(agent) as (run, proxy):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        proxy.mute()
        await until(lambda: not agent.running)
        proxy.cut()
        proxy.heal()
        await task
        assert run.came["ro-1", 1] == exact(ask(1))


async def test_a_start_that_is_lost_with_its_connection_is_no_lost_rollout() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, proxy):
        await run.one(ask(1))
        await until(lambda: not len(buffer_of(agent)))  # the agent has nothing more to do
        proxy.mute()
        task = asyncio.create_task(run.one(ask(2)))
        await until(lambda: any(one.sent for one in run.stream._state.in_flight.values()))
        proxy.cut()
        proxy.heal()
        await task
        assert run.came["ro-2", 1] == exact(ask(2))
        assert len(agent.requests) == 2


async def test_a_collector_that_does_not_come_back_is_forgotten() -> None:
    agent = CollectAgent(pause=slow(30.0), config=CollectConfig(resume_window_s=0.2))
    async with collecting(agent, replace(QUICK, reconnect_s=1.0, hello_s=2.0)) as (run, proxy):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        proxy.mute()
        proxy.cut()
        await until(lambda: not agent.running and not agent.collectors._collectors)
        with pytest.raises(MeshError) as caught:
            await task
        assert caught.value.reason_name == "PEER_UNAVAILABLE"
        assert caught.value.message.startswith(
            f"the agent at {proxy.address} was unreachable for more than 1 s. Check that the agent "
        )
        assert run.stream.broken is not None


async def test_a_restarted_agent_ends_what_it_lost_and_takes_more() -> None:
    async with AsyncExitStack() as stack:
        before = CollectAgent(pause=slow(30.0))
        serving = AsyncExitStack()
        port = await serving.enter_async_context(serve_agent(before, free_port()))
        proxy = await stack.enter_async_context(Proxy(port))
        directory = await stack.enter_async_context(directory_of(proxy.address))
        stream = CollectStream(directory.peer(directory.instances()[0]), proxy.address, QUICK)
        stack.push_async_callback(stream.close)
        run = Run(stream)
        tasks = [asyncio.create_task(run.one(ask(number))) for number in range(3)]
        await until(lambda: len(run.came) == 3 and all(run.came.values()))
        proxy.mute()
        proxy.cut()
        await serving.aclose()
        after = CollectAgent()
        await stack.enter_async_context(serve_agent(after, port))
        proxy.heal()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(one, "reason_name", one) for one in results] == ["PEER_UNAVAILABLE"] * 3
        assert stream.broken is None  # it is the same stream, with nothing in flight
        await run.one(ask(1, attempt=2))
        assert run.came["ro-1", 2] == exact(ask(1, attempt=2))


async def test_an_agent_that_is_killed_costs_its_rollouts_an_attempt_and_no_more() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        directory = await stack.enter_async_context(directory_of(address))
        pool = AgentPool(directory, replace(QUICK, reconnect_s=BOUND_S))
        stack.push_async_callback(pool.close)
        first = await _process(stack, port)
        begun: set[str] = set()

        def came(event: pb.RolloutEvent) -> None:
            begun.add(event.rollout_id)

        running = [asyncio.create_task(attempt_at(pool, n, on_event=came)) for n in range(20)]
        await until(lambda: len(begun) == 20)
        first.kill()
        await first.wait()
        await _process(stack, port)
        outcomes = await asyncio.gather(*running)
        failures = [one.failure for one in outcomes if isinstance(one, FailedAttempt)]
        assert len(failures) == 20
        assert all(one.retry_safe and one.boundary == pb.BOUNDARY_AGENT for one in failures)
        assert {from_status(one.status).reason_name for one in failures} == {"PEER_UNAVAILABLE"}
        again = await asyncio.gather(*(attempt_at(pool, number, 2) for number in range(20)))
        assert all(isinstance(one, pb.Rollout) and one.attempt == 2 for one in again)


async def _process(stack: AsyncExitStack, port: int) -> asyncio.subprocess.Process:
    """The scripted agent in a process of its own; it is killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.collecting",
        str(port),
        stdout=asyncio.subprocess.PIPE,
    )

    async def end() -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        assert await process.stdout.readline() == b"ready\n"
    return process


async def test_a_peer_that_falls_silent_is_given_up_and_found_again() -> None:
    agent = CollectAgent(pause=slow(0.3))
    limits = replace(QUICK, silence_s=0.6, hello_s=2.0, reconnect_s=BOUND_S)
    async with collecting(agent, limits) as (run, proxy):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        proxy.mute()  # half-open: nothing says that it is broken
        await until(lambda: not run.stream.connected)
        proxy.cut()
        proxy.heal()
        await task
        assert run.came["ro-1", 1] == exact(ask(1))


async def test_an_agent_that_cannot_be_reached_fails_at_once() -> None:
    async with directory_of("127.0.0.1:9") as directory:
        stream = CollectStream(directory.peer(directory.instances()[0]), "127.0.0.1:9", QUICK)
        with pytest.raises(MeshError, match="PEER_UNAVAILABLE"):
            async with asyncio.timeout(BOUND_S):
                await Run(stream).one(ask(1))
        await stream.close()


async def test_an_agent_that_shuts_down_lets_rollouts_end_and_takes_none() -> None:
    agent = CollectAgent()
    agent.go.clear()
    async with collecting(agent) as (run, _):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        agent.collectors.drain(BOUND_S)
        with pytest.raises(MeshError, match="DRAINING"):
            await run.one(ask(2))
        agent.go.set()
        await task
        assert run.came["ro-1", 1] == exact(ask(1))
        await until(lambda: run.stream.broken)
        assert run.stream.broken is not None
        # An agent's status that arrives while the collector writes is lost in grpc.aio.
        assert run.stream.broken.reason_name in ("DRAINING", "PEER_UNAVAILABLE")


async def test_a_fault_of_the_agents_own_code_is_no_quiet_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = CollectAgent()

    def fault() -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(agent.collectors, "_start_attempts", fault)
    async with collecting(agent, replace(QUICK, reconnect_s=1.0)) as (run, _):
        with pytest.raises(MeshError, match="INTERNAL_FAULT"):
            async with asyncio.timeout(BOUND_S):
                await run.one(ask(1))


async def test_a_shutdown_ends_what_does_not_end_in_time() -> None:
    agent = CollectAgent(pause=slow(30.0))
    async with collecting(agent) as (run, _):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        agent.collectors.drain(0.05)
        await task
        failed = pb.RolloutEvent.FromString(run.came["ro-1", 1][-1]).failed
        assert from_status(failed.failure.status).reason_name == "DRAINING"
        assert failed.failure.retry_safe


async def test_closing_a_collector_stops_its_rollouts() -> None:
    agent = CollectAgent(pause=slow(30.0))
    async with collecting(agent) as (run, _):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        await run.stream.close()
        with pytest.raises(MeshError, match="CALLER_CANCELLED"):
            await task
        await until(lambda: not agent.running)
