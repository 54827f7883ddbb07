"""Collect over real gRPC: collectors and agents whose connections break."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_client.attempt import run_attempt
from gymmesh_client.collect_stream import AgentPool, CollectStream, StreamLimits
from gymmesh_client.rows import FailedAttempt
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory
from tests.support.collecting import (
    CollectAgent,
    agent_at,
    ask,
    directory_of,
    five_events,
    serve_agent,
)
from tests.support.proxy import Proxy

pytestmark = pytest.mark.timeout(90)
QUICK = StreamLimits(backoff_s=0.01, backoff_cap_s=0.05, reconnect_s=5.0, acknowledge_s=0.01)
BOUND_S = 30.0


class Run:
    """A collector of scripted rollouts: what came, by rollout id and attempt."""

    def __init__(self, stream: CollectStream) -> None:
        self.stream = stream
        self.came: dict[tuple[str, int], list[bytes]] = {}

    async def one(
        self, request: agent_pb2.RunRolloutRequest, *, timeout_s: float = 60.0, held: bool = True
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


def ledger_of(agent: CollectAgent) -> Any:
    (stream,) = agent.desk._streams.values()
    return stream.ledger


# ---- the ordinary course ------------------------------------------------------------------------
async def test_rollouts_run_over_one_stream() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, proxy):
        requests = [ask(number) for number in range(200)]
        await asyncio.gather(*(run.one(request) for request in requests))
        assert all(run.came[one.rollout_id, 1] == exact(one) for one in requests)
        assert proxy.connections == 1
        await until(lambda: len(ledger_of(agent)) == 0)  # all stored, so all forgotten
        assert run.stream.in_flight == 0
        await run.stream.close()
        await until(lambda: not agent.desk._streams)


@pytest.mark.parametrize(("seed", "count"), [(1, 2000), (2, 500)])
async def test_cuts_at_random_points_lose_and_repeat_nothing(seed: int, count: int) -> None:
    draw = random.Random(seed)
    agent = CollectAgent(pause=lambda event: draw.random() * 0.02 if draw.random() < 0.3 else None)
    places = asyncio.Semaphore(100)
    async with collecting(agent, cut_after=lambda: draw.randrange(1_000, 60_000)) as (run, proxy):

        async def one(number: int) -> None:
            async with places:
                await run.one(ask(number))

        await asyncio.gather(*(one(number) for number in range(count)))
        wrong = [n for n in range(count) if run.came[f"ro-{n}", 1] != exact(ask(n))]
        assert not wrong
        assert proxy.cuts >= count // 125
        # Each ran once: no start was lost, none was taken for two.
        assert len({one.rollout_id for one in agent.requests}) == len(agent.requests) == count
        # A cut may have taken the last acknowledgement along; the next connection says it again.
        proxy.cut_after = None
        while len(ledger_of(agent)):
            count += 1
            await run.one(ask(count))
            await asyncio.sleep(0.1)


async def test_what_is_not_stored_is_kept() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, _):
        first, second = ask(1), ask(2)
        for request in (first, second):
            await run.stream.run(request, timeout_s=9, on_event=lambda event: None, held=True)
        assert len(ledger_of(agent)) == 10
        run.stream.stored(("ro-2", 1))
        run.stream.stored(("ro-1", 1))
        await until(lambda: len(ledger_of(agent)) == 0)


# ---- errors, deadlines, cancelling --------------------------------------------------------------
async def test_a_refused_start_is_an_error_of_its_own() -> None:
    async with collecting(CollectAgent()) as (run, _):
        good = asyncio.create_task(run.one(ask(1)))
        with pytest.raises(MeshError) as caught:
            await run.one(ask(2, environment=""))
        assert caught.value.reason_name == "REQUIRED_FIELD_MISSING"
        with pytest.raises(MeshError, match=r"REQUIRED_FIELD_MISSING: .*'rollout_id'"):
            await run.one(agent_pb2.RunRolloutRequest(task=ask(1).task, attempt=1))
        await good


async def test_a_fault_of_the_agent_fails_its_rollout_only() -> None:
    def script(request: agent_pb2.RunRolloutRequest) -> list[pb.RolloutEvent]:
        events = five_events(request)
        return [*events[:2], None] if request.rollout_id == "ro-1" else events  # type: ignore[list-item]  # breaks on purpose

    async with collecting(CollectAgent(script)) as (run, _):
        await asyncio.gather(run.one(ask(1)), run.one(ask(2)))
        assert run.kinds(ask(1)) == ["started", "model_call_completed", "failed"]
        failed = pb.RolloutEvent.FromString(run.came["ro-1", 1][-1])
        assert failed.failed.failure.boundary == pb.BOUNDARY_AGENT
        assert (failed.sequence, failed.failed.events) == (3, 3)
        assert run.came["ro-2", 1] == exact(ask(2))


async def test_the_deadline_counts_from_receipt_and_reaches_the_attempt() -> None:
    agent = CollectAgent()
    async with collecting(agent) as (run, _):
        await run.one(ask(1), timeout_s=20.0)
        (context,) = agent.contexts
        assert 15.0 < context.time_remaining() <= 20.0


async def test_one_whose_time_is_over_before_its_turn_is_refused() -> None:
    agent = CollectAgent(pause=slow(1.0), config=CollectConfig(capacity=1))
    async with collecting(agent) as (run, _):
        first = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        with pytest.raises(MeshError, match="DEADLINE_PASSED"):
            await run.one(ask(2), timeout_s=0.2)
        await first
        assert len(agent.requests) == 1


async def test_cancelling_one_stops_it_and_no_other() -> None:
    agent = CollectAgent(pause=slow(0.5))
    stale = metrics.STALE_EVENTS.labels().value
    async with collecting(agent) as (run, _):
        task, other = (asyncio.create_task(run.one(ask(number))) for number in (1, 2))
        await until(lambda: run.came.get(("ro-1", 1)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await other
        await until(lambda: not agent.running)
        assert len(run.came["ro-1", 1]) < 5
        # Its last event, which says that it was cancelled, reaches nobody.
        await until(lambda: metrics.STALE_EVENTS.labels().value > stale)
        await until(lambda: len(ledger_of(agent)) == 0)


async def test_cancelling_one_that_waits_for_its_turn() -> None:
    agent = CollectAgent(pause=slow(0.4), config=CollectConfig(capacity=1))
    async with collecting(agent) as (run, _):
        first = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        second = asyncio.create_task(run.one(ask(2)))
        await until(lambda: next(iter(agent.desk._streams.values())).roster.waiting)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await first
        await until(lambda: next(iter(agent.desk._streams.values())).roster.idle)
        assert [one.rollout_id for one in agent.requests] == ["ro-1"]


async def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    agent = CollectAgent(pause=slow(0.2), config=CollectConfig(capacity=2, queue=3))
    async with collecting(agent) as (run, _):
        results = await asyncio.gather(
            *(run.one(ask(number)) for number in range(9)), return_exceptions=True
        )
        errors = [one for one in results if isinstance(one, MeshError)]
        assert {one.reason_name for one in errors} == {"QUEUE_FULL"}
        assert all(one.retry_after_s for one in errors)
        # The queue is filled before places are given: those that waited at receipt.
        assert len(errors) == 6
        assert len(agent.requests) == 3


async def test_what_a_reader_raises_ends_its_attempt() -> None:
    agent = CollectAgent(pause=slow(5.0))

    def object_(event: pb.RolloutEvent) -> None:
        raise ValueError("not this one")

    async with collecting(agent) as (run, _):
        with pytest.raises(ValueError, match="not this one"):
            await run.stream.run(ask(1), timeout_s=20, on_event=object_)
        await until(lambda: not agent.running)


# ---- connections that break, agents that are lost -----------------------------------------------
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


async def test_a_collector_that_does_not_come_back_is_forgotten() -> None:
    agent = CollectAgent(pause=slow(30.0), config=CollectConfig(resume_window_s=0.2))
    async with collecting(agent, replace(QUICK, reconnect_s=1.0, hello_s=2.0)) as (run, proxy):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        proxy.mute()
        proxy.cut()
        await until(lambda: not agent.running and not agent.desk._streams)
        with pytest.raises(MeshError) as caught:
            await task
        assert caught.value.reason_name == "PEER_UNAVAILABLE"
        assert run.stream.broken is not None


async def test_a_restarted_agent_ends_what_it_lost_and_takes_more() -> None:
    async with AsyncExitStack() as stack:
        before = CollectAgent(pause=slow(30.0))
        serving = AsyncExitStack()
        port = await serving.enter_async_context(serve_agent(before))
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        directory = await stack.enter_async_context(directory_of(address))
        pool = AgentPool(directory, replace(QUICK, reconnect_s=20.0))
        stack.push_async_callback(pool.close)
        first = await _process(stack, port)
        running = [asyncio.create_task(_attempt(pool, number)) for number in range(20)]
        assert first.stdout is not None
        async with asyncio.timeout(BOUND_S):
            for _ in running:  # some way into each
                assert await first.stdout.readline() == b"begun\n"
        first.kill()
        await first.wait()
        await _process(stack, port)
        outcomes = await asyncio.gather(*running)
        failures = [one.failure for one in outcomes if isinstance(one, FailedAttempt)]
        assert len(failures) == 20
        assert all(one.retry_safe and one.boundary == pb.BOUNDARY_AGENT for one in failures)
        assert {from_status(one.status).reason_name for one in failures} == {"PEER_UNAVAILABLE"}
        again = await asyncio.gather(*(_attempt(pool, number, 2) for number in range(20)))
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
    limits = replace(QUICK, silence_s=0.6, hello_s=2.0, reconnect_s=20.0)
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
    agent = CollectAgent(pause=slow(0.5))
    async with collecting(agent) as (run, _):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        agent.desk.drain(30.0)
        with pytest.raises(MeshError, match="DRAINING"):
            await run.one(ask(2))
        await task
        assert run.came["ro-1", 1] == exact(ask(1))
        await until(lambda: run.stream.broken)
        assert run.stream.broken is not None
        assert run.stream.broken.reason_name == "DRAINING"


async def test_a_shutdown_ends_what_does_not_end_in_time() -> None:
    agent = CollectAgent(pause=slow(30.0))
    async with collecting(agent) as (run, _):
        task = asyncio.create_task(run.one(ask(1)))
        await until(lambda: run.came.get(("ro-1", 1)))
        agent.desk.drain(0.05)
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


# ---- memory and fairness ------------------------------------------------------------------------
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
            sizes.append(ledger_of(agent).size)

        async def one(number: int) -> None:
            await run.stream.run(ask(number), timeout_s=60, on_event=read, held=True)
            await open_.wait()
            run.stream.stored((f"ro-{number}", 1))

        tasks = [asyncio.create_task(one(number)) for number in range(4)]
        await until(lambda: ledger_of(agent).size if agent.desk._streams else 0)
        open_.set()
        await asyncio.gather(*tasks)
        assert len(sizes) == 4 * (deltas + 2)
        # The bound, and an event or two of each rollout.
        assert max(sizes) < 0.05 * 2**20 + 4 * 2 * 1300


async def test_collectors_share_the_places() -> None:
    agent = CollectAgent(pause=slow(0.03), config=CollectConfig(capacity=4))
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
        await asyncio.gather(*(modest.one(ask(1000 + number)) for number in range(4)))
        assert sum(task.done() for task in many) < 30
        await asyncio.gather(*many)


async def test_the_agent_says_how_busy_it_is() -> None:
    agent = CollectAgent(pause=slow(2.0), config=CollectConfig(capacity=2))
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


# ---- finding agents -----------------------------------------------------------------------------
async def test_attempts_are_spread_over_instances_and_over_what_they_offer() -> None:
    with_, without = CollectAgent(pause=slow(0.02)), CollectAgent(offers=False)
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(serve_agent(one)) for one in (with_, without)]
        both = await stack.enter_async_context(directory_of(*(f"127.0.0.1:{p}" for p in ports)))
        pool = AgentPool(both, QUICK)
        stack.push_async_callback(pool.close)
        outcomes = await asyncio.gather(
            *(_attempt(pool, number) for number in range(20)), return_exceptions=False
        )
        assert all(isinstance(one, pb.Rollout) for one in outcomes)
        assert with_.requests
        assert without.requests
        assert len(with_.requests) + len(without.requests) == 20


async def test_an_instance_that_is_lost_is_left_for_another() -> None:
    pause_s = 0.01
    agents = [CollectAgent(pause=lambda event: pause_s) for _ in range(2)]
    async with AsyncExitStack() as stack:
        proxies = []
        for agent in agents:
            port = await stack.enter_async_context(serve_agent(agent))
            proxies.append(await stack.enter_async_context(Proxy(port)))
        directory = await stack.enter_async_context(directory_of(*(p.address for p in proxies)))
        pool = AgentPool(directory, replace(QUICK, reconnect_s=2.0))
        stack.push_async_callback(pool.close)
        await asyncio.gather(*(_attempt(pool, number) for number in range(8)))
        assert all(agent.requests for agent in agents)
        pause_s = 1.0
        running = [asyncio.create_task(_attempt(pool, 100 + number)) for number in range(8)]
        await until(lambda: all(agent.running for agent in agents))
        await proxies[0].__aexit__()
        outcomes = await asyncio.gather(*running)
        pause_s = 0.01
        lost = [one for one in outcomes if isinstance(one, FailedAttempt)]
        assert 0 < len(lost) < 8
        assert all(one.failure.retry_safe for one in lost)
        assert {one.failure.boundary for one in lost} == {pb.BOUNDARY_AGENT}
        again = await asyncio.gather(*(_attempt(pool, 200 + number) for number in range(8)))
        assert all(isinstance(one, pb.Rollout) for one in again)


async def _attempt(pool: AgentPool, number: int, attempt: int = 1) -> pb.Rollout | FailedAttempt:
    request = ask(number, attempt, agent="scripted")
    outcome = await run_attempt(pool.connect, request, repeat_index=0, timeout_s=20.0)
    pool.stored(request.rollout_id, request.attempt)
    return outcome


async def test_an_unknown_agent_is_said_so() -> None:
    directory = PeerDirectory()
    directory.upsert(agent_at("127.0.0.1:1", "other"))
    pool = AgentPool(directory)
    with pytest.raises(MeshError, match="SERVICE_NOT_FOUND"):
        await pool.connect("scripted")
    await pool.close()
    await directory.close()
