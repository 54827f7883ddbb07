"""The collector under faults: whatever agents do, every rollout has exactly one outcome."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import (
    AgentPeer,
    CollectOptions,
    Collector,
    FailedAttempt,
    OutputFiles,
    open_run,
    run_attempt,
)
from gymmesh_client.collect_stream.state import SENT
from gymmesh_client.dispatch import RunStateError
from gymmesh_client.rollout_ids import rollout_key
from gymmesh_runtime.errors import MeshError, to_status
from tests.chaos.journal_file import read_story
from tests.support.rollouts import NoGroups, ScriptedAgent, failed, make_events
from tests.unit.client.test_collect import collector, good, prepared, rows, tasks

Reason = errors_pb2.ErrorReason
FAULTS = (
    "none",
    "away",  # before anything was begun
    "full",
    "unheard",  # of: the agent may run it, and is lost before its first event
    "lost",  # after the first event
    "no room",
    "model",
    "unsafe",
    "cut",  # the stream ends too early
)
BURNS_NOTHING = ("away", "full")


@dataclass
class FaultyAgent(NoGroups):
    """Does what the script says, call by call, and then all is well.

    `absent` times are calls during which the agent is not to be found at all.
    """

    script: list[str]
    absent: int = 0
    begun: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[str, int]] = field(default_factory=list)
    refused: list[tuple[str, int]] = field(default_factory=list)
    _calls: Any = field(default_factory=itertools.count)

    async def connect(self, name: str) -> AgentPeer:
        if self.absent:
            self.absent -= 1
            raise MeshError(Reason.ERROR_REASON_SERVICE_NOT_FOUND, "no such agent")
        return self

    async def RunRollout(
        self, request: agent_pb2.RunRolloutRequest, *, timeout: float
    ) -> AsyncGenerator[agent_pb2.RunRolloutResponse, None]:
        call = next(self._calls)
        fault = self.script[call] if call < len(self.script) else "none"
        key = (request.rollout_id, request.attempt)
        if fault in BURNS_NOTHING:
            self.refused.append(key)
            away = Reason.ERROR_REASON_PEER_UNAVAILABLE
            raise MeshError(away if fault == "away" else Reason.ERROR_REASON_QUEUE_FULL, fault)
        self.sent.append(key)
        if fault == "unheard":
            metadata = {SENT: "true"}
            raise MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "lost", metadata=metadata)
        for event in self._events(request, fault):
            await asyncio.sleep(0)
            yield agent_pb2.RunRolloutResponse(event=event)
            if fault == "lost":
                raise MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "lost")

    def _events(self, request: agent_pb2.RunRolloutRequest, fault: str) -> list[pb.RolloutEvent]:
        if fault == "no room":
            error = MeshError(Reason.ERROR_REASON_SESSION_LIMIT, "full")
            end = failed(retry_safe=True)
            end.failed.failure.boundary = pb.BOUNDARY_RESOURCE
            end.failed.failure.status.CopyFrom(to_status(error))
            return make_events(request.rollout_id, request.attempt, end)
        if fault in ("model", "unsafe"):
            end = failed(retry_safe=fault == "model")
            return make_events(request.rollout_id, request.attempt, end)
        events = list(good(request))
        return events[:-1] if fault == "cut" else events


def outcomes(files: OutputFiles) -> list[tuple[str, int]]:
    found = [*rows(files.rows), *rows(files.failures)]
    return [(row["task_id"], row["repeat_index"]) for row in found]


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(st.sampled_from(FAULTS), max_size=40),
    absent=st.integers(0, 3),
    concurrency=st.integers(1, 6),
    stop_after=st.one_of(st.none(), st.integers(0, 12)),
    cancelled=st.sets(st.integers(0, 4), max_size=2),
)
def test_every_rollout_has_one_outcome(
    script: list[str],
    absent: int,
    concurrency: int,
    stop_after: int | None,
    cancelled: set[int],
) -> None:
    """Agents fail in any way, groups are cancelled, the run is stopped anywhere and resumed."""
    asked = [(f"t-{task}", repeat) for task in range(5) for repeat in range(2)]
    with TemporaryDirectory() as folder:
        agent = FaultyAgent(script, absent)
        files = asyncio.run(_collect(Path(folder), agent, concurrency, stop_after, cancelled))
        before = files.rows.read_bytes() if files.rows.exists() else b""
        have = outcomes(files)
        assert len(have) == len(set(have))
        asyncio.run(_collect(Path(folder), agent, concurrency, None, set(), resume=True))
        assert sorted(outcomes(files)) == asked
        after = files.rows.read_bytes() if files.rows.exists() else b""
        assert after.startswith(before), "finished rows stay as they are"
        with open_run(files.rows) as run:
            assert run.completed + run.failed == len(asked)
        assert len(agent.sent) == len(set(agent.sent)), "an attempt number is begun once"
        story = read_story(files.journal.read_bytes())
        assert story.faults == []
        sent = {(rollout_key(rollout), attempt) for rollout, attempt in agent.sent}
        assert sent <= story.reserved, "and is used up on disk before that"
        for row in rows(files.rows):
            assert row["reward"] == 1.0


async def _collect(
    folder: Path,
    agent: FaultyAgent,
    concurrency: int,
    stop_after: int | None,
    cancelled: set[int],
    *,
    resume: bool = False,
) -> OutputFiles:
    options: dict[str, Any] = {"repeats": 2, "concurrency": concurrency, "patience_s": 20.0}
    files, output = prepared(folder, resume=resume)
    run = Collector(agent.connect, output, CollectOptions(wait_factor=0.01, **options))
    going = asyncio.create_task(run.run(tasks(5)))
    turns = 0
    while not going.done():
        if turns == 3:
            with contextlib.suppress(RunStateError):  # it may be over by now
                for task in cancelled:
                    run.cancel_group(f"t-{task}")
        if stop_after is not None and turns == stop_after:
            run.cancel()
        turns += 1
        await asyncio.sleep(0.002)
    tally = await going
    if stop_after is None:
        assert run.why == ""
        assert resume or tally.completed + tally.failed == 10
    return files


@pytest.mark.parametrize("kind", ["started", "model_call_completed", "completed"])
@pytest.mark.parametrize(
    "problem", [ValueError("no disk"), MeshError(Reason.ERROR_REASON_QUEUE_FULL, "no disk")]
)
async def test_an_event_on_which_its_listener_raises_is_not_data(
    kind: str, problem: Exception
) -> None:
    async def connect(name: str) -> AgentPeer:
        return ScriptedAgent(good)

    def listen(event: pb.RolloutEvent) -> None:
        if event.WhichOneof("event") == kind:
            raise problem

    request = agent_pb2.RunRolloutRequest(rollout_id="ro-t-1", attempt=1, task=tasks(1)[0])
    outcome = await run_attempt(connect, request, repeat_index=0, timeout_s=60.0, on_event=listen)
    assert isinstance(outcome, FailedAttempt)
    assert outcome.failure.boundary == pb.BOUNDARY_AGENT


async def test_an_environment_that_is_away_is_probed_by_one_rollout_at_a_time(
    tmp_path: Path,
) -> None:
    """A rollout that found it away has sent `started`, too, before its failure."""
    probes, width = 4, 8
    side_by_side: list[int] = []

    def away(request: agent_pb2.RunRolloutRequest) -> list[pb.RolloutEvent]:
        number = len(agent.requests)
        if number > width + probes:
            return list(good(request))
        if number > width:
            side_by_side.append(agent.most)
        if number >= width:
            agent.most = 0
        end = failed(retry_safe=True)
        end.failed.failure.boundary = pb.BOUNDARY_RESOURCE
        refused = MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "connection refused")
        end.failed.failure.status.CopyFrom(to_status(refused))
        return make_events(request.rollout_id, request.attempt, end)

    agent = ScriptedAgent(away)
    run, _ = collector(tmp_path, agent, concurrency=width, patience_s=20.0, max_attempts=1)
    tally = await run.run(tasks(width))
    assert (tally.completed, tally.failed) == (width, 0)
    # The first may begin before the last of those that found it away has ended.
    assert side_by_side[1:] == [1] * (probes - 1), side_by_side
