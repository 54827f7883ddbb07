"""Steering a collector: pause, width, cancelled groups, time limits, what it shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.run.v1 import run_pb2
from gymmesh_client import AgentLoad, AgentPeer, CollectOptions, Collector, RunIdentity
from gymmesh_client.control.collector_run import CollectorRun, identity_digest
from gymmesh_client.dispatch import RunStateError
from gymmesh_runtime.errors import MeshError
from tests.support.rollouts import ScriptedAgent, failed, make_events, make_task
from tests.unit.client.test_collect import collector, good, prepared, rows, tasks


class Gated(ScriptedAgent):
    """Sends the first event, then waits until it is opened."""

    def __init__(self) -> None:
        super().__init__(good)
        self.open = asyncio.Event()

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        self.requests.append(request)
        first, *rest = good(request)
        yield agent_pb2.RunRolloutResponse(event=first)
        await self.open.wait()
        for event in rest:
            yield agent_pb2.RunRolloutResponse(event=event)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)


async def test_a_paused_run_starts_nothing_and_a_tuned_one_more(tmp_path: Path) -> None:
    agent = Gated()
    run, _ = collector(tmp_path, agent, concurrency=2)
    going = asyncio.create_task(run.run(tasks(20)))
    await until(lambda: len(agent.requests) == 2)
    run.pause()
    run.tune(5)
    await asyncio.sleep(0.05)
    assert (run.state, len(agent.requests)) == ("paused", 2)
    run.resume()
    await until(lambda: len(agent.requests) == 5)
    figures = run.figures()
    assert (figures.in_flight, figures.concurrency, figures.state) == (5, 5, "running")
    with pytest.raises(RunStateError, match="at least 1"):
        run.tune(0)
    agent.open.set()
    assert (await asyncio.wait_for(going, 60)).completed == 20
    assert run.state == "finished"
    for command in (run.pause, run.resume):
        with pytest.raises(RunStateError):
            command()
    run.drain()  # in force already
    assert run.state == "finished"


async def test_a_run_paused_at_its_last_rollout_ends(tmp_path: Path) -> None:
    agent = Gated()
    run, _ = collector(tmp_path, agent)
    going = asyncio.create_task(run.run(tasks(1)))
    await until(lambda: len(agent.requests) == 1)
    run.pause()
    agent.open.set()
    assert (await asyncio.wait_for(going, 60)).completed == 1


async def test_a_cancelled_group_fails_once_and_is_not_tried_again(tmp_path: Path) -> None:
    agent = Gated()
    run, files = collector(tmp_path, agent, repeats=3, concurrency=2, max_attempts=5)
    going = asyncio.create_task(run.run(tasks(4)))
    await until(lambda: run.figures().in_flight == 2)
    run.cancel_group("t-0")  # two in flight, one not started
    run.cancel_group("t-3")  # none started
    run.cancel_group("no such task")
    agent.open.set()
    tally = await asyncio.wait_for(going, 60)
    assert (tally.completed, tally.failed, tally.retried) == (6, 6, 0)
    written = rows(files.failures)
    assert Counter(row["task_id"] for row in written) == {"t-0": 3, "t-3": 3}
    for row in written:
        assert row["failure"]["boundary"] == "CANCELLED"
        assert row["failure"]["status"]["reason"] == "CALLER_CANCELLED"
    assert sum(request.task.task_id == "t-0" for request in agent.requests) == 2
    begun = [row for row in written if row["metadata"]["timings"]["started_at"] > 0]
    assert len(begun) == 2, "what there was of those in flight is kept"


async def test_a_cancelled_group_fails_also_where_the_run_is_drained_before(
    tmp_path: Path,
) -> None:
    """What the run had not come to would run again when it is resumed."""
    agent = Gated()
    run, files = collector(tmp_path, agent, repeats=2, concurrency=1)
    going = asyncio.create_task(run.run(list(tasks(6000))))
    await until(lambda: run.figures().in_flight == 1)
    run.cancel_group("t-5999")
    run.drain()
    agent.open.set()
    tally = await asyncio.wait_for(going, 60)
    assert (tally.completed, dict(tally.causes)) == (1, {"CANCELLED CALLER_CANCELLED": 2})
    assert [row["task_id"] for row in rows(files.failures)] == ["t-5999"] * 2


async def test_groups_whose_retries_wait_are_cancelled_too(tmp_path: Path) -> None:
    def flaky(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        return make_events(request.rollout_id, request.attempt, failed(retry_safe=True))

    run, files = collector(tmp_path, ScriptedAgent(flaky), wait_factor=100.0, patience_s=1e6)
    going = asyncio.create_task(run.run(tasks(2)))
    await until(lambda: run.figures().retrying == 2)
    run.cancel_group("t-0")
    run.cancel_group("t-1")
    tally = await asyncio.wait_for(going, 60)
    assert dict(tally.causes) == {"CANCELLED CALLER_CANCELLED": 2}
    assert len(rows(files.failures)) == 2


async def test_the_runs_deadline_drains_it(tmp_path: Path) -> None:
    agent = Gated()
    run, _ = collector(tmp_path, agent, concurrency=3, deadline_s=3.0, grace_s=0.1)
    tally = await asyncio.wait_for(run.run(tasks(10)), 60)
    assert (tally.completed, tally.failed, len(agent.requests)) == (0, 0, 3)
    assert run.why == "the run reached its deadline of 3 s"
    assert not run.interrupted


async def test_all_attempts_of_a_rollout_share_its_time(tmp_path: Path) -> None:
    given: list[float] = []

    class Slow(ScriptedAgent):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            given.append(timeout)
            await asyncio.sleep(0.05)
            async for response in super().RunRollout(request, timeout=timeout):
                yield response

    def flaky(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.attempt < 3:
            return make_events(request.rollout_id, request.attempt, failed(retry_safe=True))
        return good(request)

    run, _ = collector(tmp_path, Slow(flaky), max_attempts=3, timeout_s=1e6, rollout_s=1e5)
    assert (await run.run(tasks(1))).completed == 1
    assert 1e5 >= given[0] > given[1] > given[2] > 0


async def test_shares_of_a_mix_and_what_agents_say(tmp_path: Path) -> None:
    agent = ScriptedAgent(good)
    files, output = prepared(tmp_path)

    async def connect(name: str) -> AgentPeer:
        return agent

    mix = [make_task(f"t-{number}") for number in range(40)]
    for task in mix[20:]:
        task.environment = "code"
    options = CollectOptions(concurrency=8, shares={"code": 3.0})
    run = Collector(connect, output, options, load=lambda: AgentLoad(target=1, waiting=4))
    await run.run(mix)
    first = Counter(request.task.environment for request in agent.requests[:16])
    assert first == {"code": 12, "math": 4}
    assert agent.most == 1, "no wider than the agents say"
    assert len(rows(files.rows)) == 40


async def test_an_agent_that_comes_back_gets_everything_once(tmp_path: Path) -> None:
    away = MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "restarting")
    agent = ScriptedAgent(good)
    absent = 5
    files, output = prepared(tmp_path)

    async def connect(name: str) -> AgentPeer:
        nonlocal absent
        if absent:
            absent -= 1
            raise MeshError(away.reason, away.message)
        return agent

    options = CollectOptions(concurrency=4, max_attempts=1, wait_factor=0.01)
    run = Collector(connect, output, options)
    tally = await asyncio.wait_for(run.run(tasks(12)), 60)
    assert (tally.completed, tally.failed, tally.put_back) == (12, 0, 5)
    assert {row["attempt"] for row in rows(files.rows)} == {1}


async def test_a_run_as_runservice_shows_it(tmp_path: Path) -> None:
    def half(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.task.task_id == "t-0":
            return make_events(request.rollout_id, 1, failed(retry_safe=False))
        return good(request)

    run, _ = collector(tmp_path, ScriptedAgent(half))
    identity = RunIdentity("t", "c", "1")
    steered = CollectorRun(run, requested=3, shown="rollouts.jsonl", identity=identity)
    assert steered.snapshot().state == run_pb2.RUN_STATE_RUNNING
    await run.run(tasks(3))
    shown = steered.snapshot()
    assert (shown.state, shown.completed, shown.failed) == (run_pb2.RUN_STATE_FINISHED, 2, 1)
    assert [(one.boundary, one.count) for one in shown.failures] == [(pb.BOUNDARY_MODEL, 1)]
    assert shown.mean_reward == 1.0
    assert shown.identity == identity_digest(identity) != identity_digest(RunIdentity("t", "c"))
    with pytest.raises(MeshError, match="--stream"):
        await anext(aiter(steered.groups(0, None)))


class Deaf(ScriptedAgent):
    """Goes on with the rollout of one task although that was cancelled."""

    def __init__(self, deaf: str) -> None:
        super().__init__(good)
        self.deaf = deaf
        self.cancelled: list[int] = []

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        task = asyncio.current_task()
        assert task is not None
        self.cancelled.append(task.cancelling())
        try:
            # The deaf one is sure to be cancelled while it waits.
            await asyncio.sleep(3600.0 if request.task.task_id == self.deaf else 0.001)
        except asyncio.CancelledError:
            if request.task.task_id != self.deaf:
                raise
        async for response in super().RunRollout(request, timeout=timeout):
            yield response


async def test_an_attempt_that_ends_although_it_was_cancelled_has_its_outcome(
    tmp_path: Path,
) -> None:
    agent = Deaf("t-0")
    run, files = collector(tmp_path, agent, concurrency=2)
    going = asyncio.create_task(run.run(tasks(20)))
    await until(lambda: len(agent.cancelled) >= 2)
    run.cancel_group("t-0")
    tally = await asyncio.wait_for(going, 60)
    assert (tally.completed, tally.failed) == (20, 0), "it came to its end all the same"
    assert agent.cancelled == [0] * 20
    assert len(rows(files.rows)) == 20


async def test_a_run_that_an_agent_cancels_while_it_ends_keeps_what_it_counts(
    tmp_path: Path,
) -> None:
    """A task that has cancelled itself is cancelled at its next await, which may be late."""

    class Canceller(ScriptedAgent):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            for event in good(request):
                if event.HasField("completed") and request.task.task_id == "t-3":
                    run.cancel()
                yield agent_pb2.RunRolloutResponse(event=event)

    run, files = collector(tmp_path, Canceller(good), concurrency=2)
    tally = await asyncio.wait_for(run.run(tasks(20)), 60)
    written = [row["task_id"] for row in rows(files.rows)]
    assert tally.completed == len(written) == len(set(written)) < 20
    assert "t-3" in written
    assert tally.failed == 0
    assert run.why == "cancelled"
