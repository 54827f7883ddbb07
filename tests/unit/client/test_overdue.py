"""Agents that do not heed a deadline: nobody waits for them for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import CollectOptions, Collector, FailedAttempt, InProcessAgent, run_attempt
from gymmesh_runtime.context import CallContext
from tests.support.rollouts import NoGroups
from tests.unit.client.test_collect import good, prepared, rows, tasks

pytestmark = pytest.mark.long


class Deaf(NoGroups):
    """Never ends rollouts of repeat 1, whatever their deadline."""

    async def connect(self, name: str) -> Any:
        return self

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        for event in good(request):
            yield agent_pb2.RunRolloutResponse(event=event)
            if request.rollout_id.endswith("-1"):
                await asyncio.Event().wait()


class DeafInProcess(Deaf):
    """The same in the collector's process."""

    async def connect(self, name: str) -> Any:
        return InProcessAgent(Served())


class Served:
    """An agent service that does not heed a deadline."""

    async def run_rollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        sink: Callable[[pb.RolloutEvent], Any],
    ) -> None:
        async for response in Deaf().RunRollout(request, timeout=context.time_remaining()):
            sink(response.event)

    async def JudgeGroup(
        self, request: agent_pb2.JudgeGroupRequest, context: CallContext
    ) -> agent_pb2.JudgeGroupResponse:
        raise NotImplementedError


class Unreachable(Deaf):
    """Is looked for without end."""

    async def connect(self, name: str) -> Any:
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymmesh_client.collector.collector._SAMPLE_S", 0.02)
    _slack(monkeypatch, 0.05)


def _slack(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How long after its deadline a rollout may still end by itself."""
    for module in ("collector.worker", "attempt"):
        monkeypatch.setattr(f"gymmesh_client.{module}.DEADLINE_SLACK_S", seconds)


@pytest.mark.parametrize(
    ("agent", "slack_s", "says"),
    [
        (Deaf(), 0.05, "within 5 s; raise --timeout of gym-cli collect"),
        # The call itself has the deadline, so that the collector need not end it.
        (DeafInProcess(), 60.0, "deadline of gymmesh.agent.v1.AgentService"),
    ],
    ids=["streams", "in process"],
)
async def test_its_rollouts_fail_and_the_others_go_on(
    agent: Deaf, slack_s: float, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _slack(monkeypatch, slack_s)
    files, output = prepared(tmp_path)
    options = CollectOptions(repeats=3, concurrency=1, timeout_s=5.0)
    async with asyncio.timeout(120):
        tally = await Collector(agent.connect, output, options).run(tasks(2))
    assert (tally.completed, tally.failed, tally.retried) == (4, 2, 0)
    for row in rows(files.failures):
        assert row["repeat_index"] == 1
        assert row["failure"]["boundary"] == "DEADLINE"
        assert row["failure"]["status"]["reason"] == "DEADLINE_PASSED"
        assert says in row["failure"]["status"]["message"]


async def test_one_that_cannot_be_reached_is_given_up(tmp_path: Path) -> None:
    files, output = prepared(tmp_path)
    options = CollectOptions(repeats=2, timeout_s=0.1)
    async with asyncio.timeout(60):
        tally = await Collector(Unreachable().connect, output, options).run(tasks(1))
    assert tally.failed == 2
    assert {row["failure"]["boundary"] for row in rows(files.failures)} == {"DEADLINE"}


async def test_so_it_is_without_a_collector() -> None:
    request = agent_pb2.RunRolloutRequest(rollout_id="ro-t-1", attempt=1)
    async with asyncio.timeout(60):
        outcome = await run_attempt(Deaf().connect, request, repeat_index=1, timeout_s=3.0)
    assert isinstance(outcome, FailedAttempt)
    assert outcome.failure.boundary == pb.BOUNDARY_DEADLINE
    assert not outcome.failure.retry_safe
    assert outcome.partial.HasField("started")
