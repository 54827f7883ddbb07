"""The collector with a scripted agent: every outcome once, on disk, typed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import (
    AgentPeer,
    CollectOptions,
    Collector,
    OpenOptions,
    OutputFiles,
    RetryChoice,
    RunIdentity,
    RunOutput,
    open_run,
    open_trace,
)
from gymmesh_client.collector.requests import repeat_seed
from gymmesh_runtime.errors import MeshError
from tests.support.rollouts import (
    NoGroups,
    Script,
    ScriptedAgent,
    answer,
    completed,
    failed,
    make_events,
    make_task,
    verdict,
)
from tests.support.scraping import Counted

ONE = RunIdentity("t", "c")


def good(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
    bodies = [answer("5"), verdict(1.0), completed()]
    return make_events(request.rollout_id, request.attempt, *bodies, task=request.task)


def prepared(
    folder: Path, *, resume: bool = False, retry: RetryChoice | None = None, repeats: int = 1
) -> tuple[OutputFiles, RunOutput]:
    files = OutputFiles(folder / "rollouts.jsonl")
    return files, RunOutput.open(
        files, ONE, OpenOptions(resume=resume, retry=retry, repeats=repeats)
    )


def collector(
    folder: Path,
    agent: AgentPeer,
    *,
    resume: bool = False,
    again: RetryChoice | None = None,
    **options: Any,
) -> tuple[Collector, OutputFiles]:
    repeats = options.get("repeats", 1)
    files, output = prepared(folder, resume=resume, retry=again, repeats=repeats)

    async def connect(name: str) -> AgentPeer:
        return agent

    settings = CollectOptions(
        **{"wait_factor": 0.0, "patience_s": 0.3, "timeout_s": 20.0, **options}
    )
    return Collector(connect, output, settings), files


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def tasks(count: int) -> list[pb.Task]:
    return [make_task(f"t-{number}", expected_answer="5") for number in range(count)]


async def test_every_rollout_has_one_row(tmp_path: Path) -> None:
    agent = ScriptedAgent(good)
    run, files = collector(tmp_path, agent, repeats=3, concurrency=4)
    tally = await run.run(tasks(5))
    got = rows(files.rows)
    assert sorted((row["task_id"], row["repeat_index"]) for row in got) == [
        (f"t-{number}", repeat) for number in range(5) for repeat in range(3)
    ]
    assert len({row["rollout_id"] for row in got}) == 15
    assert {row["expected_answer"] for row in got} == {"5"}
    assert (tally.completed, tally.failed, tally.mean_reward) == (15, 0, 1.0)
    assert 1 < agent.most <= 4
    assert not files.failures.exists()


async def test_a_safe_failure_is_tried_again_with_the_next_number(tmp_path: Path) -> None:
    def flaky(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.attempt == 1:
            return make_events(request.rollout_id, 1, failed(retry_safe=True))
        return good(request)

    run, files = collector(tmp_path, ScriptedAgent(flaky))
    tally = await run.run(tasks(2))
    assert [row["attempt"] for row in rows(files.rows)] == [2, 2]
    assert (tally.retried, tally.failed) == (2, 0)


async def failing(folder: Path, script: Script, **options: Any) -> dict[str, Any]:
    agent = ScriptedAgent(script)
    run, files = collector(folder, agent, **options)
    await run.run(tasks(1))
    assert rows(files.rows) == []
    (row,) = rows(files.failures)
    assert row["reward"] is None
    assert row["attempt"] == len(agent.requests)
    failure: dict[str, Any] = row["failure"]
    return failure


async def test_an_unsafe_failure_is_not_tried_again(tmp_path: Path) -> None:
    def unsafe(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        return make_events(request.rollout_id, request.attempt, failed(retry_safe=False))

    failure = await failing(tmp_path, unsafe)
    assert (failure["boundary"], failure["retry_safe"]) == ("MODEL", False)


async def test_a_broken_stream_is_the_agents_failure(tmp_path: Path) -> None:
    failure = await failing(tmp_path, lambda request: list(good(request))[:-1])
    assert failure["boundary"] == "AGENT"
    assert failure["retry_safe"] is True
    assert failure["status"]["metadata"]["rule"] == "truncated"


async def test_a_broken_law_is_not_tried_again(tmp_path: Path) -> None:
    failure = await failing(tmp_path, lambda request: [good(request)[0], good(request)[2]])
    assert failure["status"]["reason"] == "CONTRACT_VIOLATED"
    assert failure["status"]["metadata"] == {"rule": "sequence", "expected": "2", "got": "3"}
    assert failure["retry_safe"] is False


@pytest.mark.parametrize("evidence", [b"{nonsense", b'{"k":' + b"[" * 300 + b"]" * 300 + b"}"])
async def test_evidence_that_is_not_json_is_no_row_and_no_crash(
    tmp_path: Path, evidence: bytes
) -> None:
    """Nor is what can be read, but nests too deeply to be written."""

    def odd(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        events = good(request)
        events[2].verified.verification.evidence_json = evidence
        return events

    failure = await failing(tmp_path, odd)
    assert failure["status"]["metadata"]["rule"] == "row"


@pytest.mark.parametrize("tokens", [-1, -(2**63), 2**63 - 1])
async def test_a_rollout_counts_whatever_tokens_its_endpoint_reports(
    tmp_path: Path, tokens: int
) -> None:
    def odd(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        bodies = [answer("5", "c1"), answer("6", "c2")]
        for body in bodies:
            usage = body.model_call_completed.response.usage
            usage.input_tokens = usage.output_tokens = tokens
        bodies += [verdict(1.0), completed()]
        return make_events(request.rollout_id, request.attempt, *bodies, task=request.task)

    run, files = collector(tmp_path, ScriptedAgent(odd), concurrency=2)
    metered = Counted()
    tally = await run.run(tasks(4))
    assert (tally.completed, tally.failed, tally.mean_reward) == (4, 0, 1.0)
    # The metric stays a number to which a later rollout's tokens can be added.
    assert 0 <= metered.of("gymmesh_collector_tokens_total", direction="output") < 2**50
    nearest = max(-(2**63), min(2 * tokens, 2**63 - 1))
    for row in rows(files.rows):
        assert row["response"]["usage"]["input_tokens"] == nearest


class BrokenAgent(NoGroups):
    """Raises for every call, after some events."""

    def __init__(self, error: BaseException, events: int = 0) -> None:
        self.error, self.events, self.calls = error, events, 0

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        self.calls += 1
        for event in list(good(request))[: self.events]:
            yield agent_pb2.RunRolloutResponse(event=event)
        raise self.error


async def broken(folder: Path, error: BaseException, events: int = 0) -> tuple[Any, int]:
    agent = BrokenAgent(error, events)
    run, files = collector(folder, agent)
    await run.run(tasks(1))
    (row,) = rows(files.failures)
    return row["failure"], agent.calls


async def test_an_agent_that_stays_away_ends_the_run_and_burns_nothing(tmp_path: Path) -> None:
    error = MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "gone")
    run, files = collector(tmp_path, BrokenAgent(error), repeats=3)
    tally = await asyncio.wait_for(run.run(tasks(2)), 60)
    assert (tally.completed, tally.failed, tally.retried) == (0, 0, 0)
    assert tally.put_back > 3
    assert "agent 'tool_loop' has accepted no rollouts" in run.why
    assert run.state == "stopped"
    agent = ScriptedAgent(good)
    again, _ = collector(tmp_path, agent, resume=True, repeats=3)
    assert (await again.run(tasks(2))).completed == 6
    assert rows(files.failures) == []


async def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    error = MeshError(errors_pb2.ERROR_REASON_TASK_INVALID, "no expected_answer")
    failure, calls = await broken(tmp_path, error)
    assert (failure["status"]["reason"], calls) == ("TASK_INVALID", 1)


async def test_a_stream_that_breaks_half_way_is_tried_again(tmp_path: Path) -> None:
    error = MeshError(errors_pb2.ERROR_REASON_INTERNAL_FAULT, "reset")
    failure, calls = await broken(tmp_path, error, events=2)
    assert (failure["boundary"], failure["retry_safe"], calls) == ("AGENT", True, 2)


async def test_an_error_after_the_end_does_not_undo_the_outcome(tmp_path: Path) -> None:
    error = MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "gone")
    run, files = collector(tmp_path, BrokenAgent(error, events=4))
    await run.run(tasks(1))
    assert len(rows(files.rows)) == 1


async def test_the_deadline_is_a_boundary_of_its_own(tmp_path: Path) -> None:
    error = MeshError(errors_pb2.ERROR_REASON_DEADLINE_PASSED, "late")
    failure, calls = await broken(tmp_path, error, events=1)
    assert (failure["boundary"], failure["retry_safe"], calls) == ("DEADLINE", False, 1)


async def test_a_surprise_is_a_failure_of_that_rollout_only(tmp_path: Path) -> None:
    failure, calls = await broken(tmp_path, RuntimeError("secret words"))
    assert failure["status"]["reason"] == "INTERNAL_FAULT"
    assert "secret words" not in json.dumps(failure)
    assert calls == 1


async def test_a_cancellation_that_an_agent_lets_out_is_a_failure_of_that_rollout_only(
    tmp_path: Path,
) -> None:
    failure, calls = await broken(tmp_path, asyncio.CancelledError(), events=2)
    assert (failure["boundary"], failure["status"]["reason"]) == ("AGENT", "INTERNAL_FAULT")
    assert calls == 1


async def test_resume_runs_what_has_no_outcome_and_what_is_to_be_retried(tmp_path: Path) -> None:
    def half(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.task.task_id == "t-1":
            return make_events(request.rollout_id, request.attempt, failed(retry_safe=False))
        return good(request)

    run, files = collector(tmp_path, ScriptedAgent(half))
    await run.run(tasks(2))
    before = files.rows.read_bytes()
    (lost,) = rows(files.failures)
    agent = ScriptedAgent(good)
    more, _ = collector(tmp_path, agent, resume=True)
    await more.run(tasks(2))
    assert agent.requests == []
    again, _ = collector(
        tmp_path, agent, resume=True, again=RetryChoice.parse(["failed"]), repeats=2
    )
    await again.run(tasks(3))
    assert files.rows.read_bytes().startswith(before)
    keys = [(row["task_id"], row["repeat_index"]) for row in rows(files.rows)]
    assert sorted(keys) == [(f"t-{number}", repeat) for number in range(3) for repeat in range(2)]
    attempts = {
        (request.task.task_id, request.attempt)
        for request in agent.requests
        if request.task.task_id == "t-1"
    }
    # The failed one goes on with its second attempt; its other repeat is new.
    assert attempts == {("t-1", 2), ("t-1", 1)}
    ids = {(row["task_id"], row["repeat_index"]): row["rollout_id"] for row in rows(files.rows)}
    assert ids["t-1", 0] == lost["rollout_id"]
    assert rows(files.failures) == []
    assert rows(files.superseded) == [lost]
    with open_run(files.rows) as run_as_read:
        history = run_as_read.attempts(lost["rollout_id"])
    assert [(one.attempt, one.outcome, one.superseded) for one in history] == [
        (1, "failed", "a retry was asked for"),
        (2, "completed", ""),
    ]


async def test_a_trace_has_every_event_of_every_attempt(tmp_path: Path) -> None:
    def flaky(request: agent_pb2.RunRolloutRequest) -> Sequence[pb.RolloutEvent]:
        if request.attempt == 1 and request.task.task_id == "t-1":
            return make_events(request.rollout_id, 1, failed(retry_safe=True))
        return good(request)

    agent = ScriptedAgent(flaky)

    async def connect(name: str) -> AgentPeer:
        return agent

    files = OutputFiles(tmp_path / "rollouts.jsonl")
    output = RunOutput.open(files, ONE, OpenOptions(trace=True))
    await Collector(connect, output, CollectOptions(wait_factor=0.0)).run(tasks(20))
    assert len(agent.requests) == 21
    with open_trace(files.rows) as trace:
        assert len(list(trace)) == 21
        for request in agent.requests:
            events = trace.events(request.rollout_id, request.attempt)
            assert events == list(flaky(request))


async def test_a_cancelled_attempt_has_a_trace_and_no_outcome(tmp_path: Path) -> None:
    class Stuck(NoGroups):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            yield agent_pb2.RunRolloutResponse(event=good(request)[0])
            started.set()
            await asyncio.Event().wait()

    async def connect(name: str) -> AgentPeer:
        return Stuck()

    started = asyncio.Event()
    files = OutputFiles(tmp_path / "rollouts.jsonl")
    output = RunOutput.open(files, ONE, OpenOptions(trace=True))
    run = Collector(connect, output, CollectOptions(grace_s=0.0))
    going = asyncio.create_task(run.run(tasks(1)))
    await asyncio.wait_for(started.wait(), 60)
    run.interrupt()
    assert (await asyncio.wait_for(going, 60)).completed == 0
    with open_trace(files.rows) as trace:
        assert [[event.sequence for event in events] for events in trace] == [[1]]


async def test_an_interrupt_drains_then_cancels(tmp_path: Path) -> None:
    stuck, reached = asyncio.Event(), asyncio.Event()

    class Stuck(ScriptedAgent):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            if request.task.task_id == "t-1":
                await stuck.wait()
            if request.task.task_id == "t-5":
                reached.set()
            async for response in super().RunRollout(request, timeout=timeout):
                yield response

    agent = Stuck(good)
    run, files = collector(tmp_path, agent, concurrency=2, grace_s=0.2)
    going = asyncio.create_task(run.run(tasks(50)))
    await asyncio.wait_for(reached.wait(), 60)
    run.interrupt()
    tally = await asyncio.wait_for(going, 60)
    written = rows(files.rows)
    assert tally.completed == len(written) < 50
    assert "t-1" not in {row["task_id"] for row in written}
    assert not files.failures.exists()


async def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    started = asyncio.Event()

    class Stuck(NoGroups):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            started.set()
            await asyncio.Event().wait()
            yield agent_pb2.RunRolloutResponse()

    run, files = collector(tmp_path, Stuck(), grace_s=3600.0)
    going = asyncio.create_task(run.run(tasks(3)))
    await asyncio.wait_for(started.wait(), 60)
    run.drain()
    assert not run.figures().interrupted
    run.interrupt()
    assert run.figures().interrupted
    await asyncio.sleep(0.05)
    assert not going.done()
    run.interrupt()
    tally = await asyncio.wait_for(going, 60)
    assert (tally.completed, tally.failed, rows(files.rows)) == (0, 0, [])


async def test_an_agent_that_ignores_its_cancellation_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_client.collector.collector.CANCEL_S", 0.05)
    release = asyncio.Event()

    class Stubborn(NoGroups):
        async def RunRollout(
            self, request: agent_pb2.RunRolloutRequest, *, timeout: float
        ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
            started.set()
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            yield agent_pb2.RunRolloutResponse()

    started = asyncio.Event()
    run, files = collector(tmp_path, Stubborn(), grace_s=0.0)
    going = asyncio.create_task(run.run(tasks(2)))
    await asyncio.wait_for(started.wait(), 60)
    run.interrupt()
    assert (await asyncio.wait_for(going, 60)).completed == 0
    release.set()
    await asyncio.sleep(0.05)
    assert rows(files.rows) == []
    assert not files.failures.exists()


async def test_each_repeat_has_a_seed_of_its_own(tmp_path: Path) -> None:
    agent = ScriptedAgent(good)
    run, _ = collector(tmp_path, agent, repeats=3)
    task = make_task()
    task.seed = 2**63 - 1
    await run.run([task])
    seeds = [request.task.seed for request in agent.requests]
    assert len(set(seeds)) == 3
    assert seeds[0] == task.seed == 2**63 - 1
    assert repeat_seed(5, 0) == 5
