"""Refusals, faults, deadlines and cancelled rollouts."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_client.collect_stream import metrics
from gymmesh_runtime.errors import MeshError
from tests.integration.collect_stream.runs import (
    buffer_of,
    collecting,
    exact,
    slow,
    until,
)
from tests.support.collecting import (
    CollectAgent,
    ask,
    five_events,
)


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
        await run.one(ask(1), timeout_s=600.0)
        (context,) = agent.contexts
        assert 300.0 < context.time_remaining() <= 600.0


async def test_one_whose_time_is_over_before_its_turn_is_refused() -> None:
    agent = CollectAgent(config=CollectConfig(capacity=1))
    agent.go.clear()
    async with collecting(agent) as (run, _):
        first = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        with pytest.raises(MeshError, match="DEADLINE_PASSED"):
            await run.one(ask(2), timeout_s=0.2)
        agent.go.set()
        await first
        assert len(agent.requests) == 1


async def test_cancelling_one_stops_it_and_no_other() -> None:
    agent = CollectAgent()
    agent.go.clear()
    stale = metrics.STALE_EVENTS.labels().value
    async with collecting(agent) as (run, _):
        task, other = (asyncio.create_task(run.one(ask(number))) for number in (1, 2))
        await until(lambda: run.came.get(("ro-1", 1)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: agent.running == 1)
        agent.go.set()
        await other
        await until(lambda: not agent.running)
        assert len(run.came["ro-1", 1]) < 5
        # Its last event, which says that it was cancelled, reaches nobody.
        await until(lambda: metrics.STALE_EVENTS.labels().value > stale)
        await until(lambda: len(buffer_of(agent)) == 0)


async def test_cancelling_one_that_waits_for_its_turn() -> None:
    agent = CollectAgent(config=CollectConfig(capacity=1))
    agent.go.clear()
    async with collecting(agent) as (run, _):
        first = asyncio.create_task(run.one(ask(1)))
        await until(lambda: agent.running)
        (collector,) = agent.collectors._collectors.values()
        second = asyncio.create_task(run.one(ask(2)))
        await until(lambda: collector.queue.waiting)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        await until(lambda: not collector.queue.waiting)
        agent.go.set()
        await first
        await until(lambda: collector.queue.idle)
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
            await run.stream.run(ask(1), timeout_s=60, on_event=object_)
        await until(lambda: not agent.running)
