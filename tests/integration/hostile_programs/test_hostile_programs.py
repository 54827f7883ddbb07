"""Hostile programs: each gets nothing and has the end that docs/programs.md says, and the rollouts
beside it are right.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import from_status
from tests.integration.hostile_programs.cases import PROGRAMS
from tests.integration.hostile_programs.world import ANSWERS, Events, HostileOutcome, hostile_world
from tests.support.optional import require

NAMES = sorted(PROGRAMS)


@pytest.fixture
async def outcome(program: str, tmp_path: Path) -> HostileOutcome:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    async with hostile_world(tmp_path) as world:
        return await world.run(PROGRAMS[program], os.getpid())


def ended(events: Events) -> rollout_pb2.ProgramEnded:
    """The end of the program; an empty one where there was none."""
    found = [one.program_ended for one in events if one.HasField("program_ended")]
    return found[0] if found else rollout_pb2.ProgramEnded()


def answered(events: Events) -> list[rollout_pb2.ModelCallCompleted]:
    return [one.model_call_completed for one in events if one.HasField("model_call_completed")]


def outcome_of(events: Events) -> tuple[object, object]:
    """Stop reason and reward, or boundary and reason."""
    last = events[-1]
    if last.HasField("failed"):
        failure = last.failed.failure
        boundary = rollout_pb2.Boundary.Name(failure.boundary).removeprefix("BOUNDARY_")
        return boundary, from_status(failure.status).reason_name
    rewards = [one.verified.verification.reward for one in events if one.HasField("verified")]
    stop = rollout_pb2.StopReason.Name(last.completed.stop_reason)
    return stop.removeprefix("STOP_REASON_"), rewards[0] if rewards else None


@pytest.mark.parametrize("program", NAMES)
async def test_it_gets_nothing_and_the_rollout_beside_it_is_right(
    program: str, outcome: HostileOutcome
) -> None:
    wanted, said = PROGRAMS[program], ended(outcome.events)
    output = said.output_tail.decode(errors="replace")
    assert "BREACH" not in output, output
    assert outcome.touched == 0
    ends = wanted.ends.failed or (wanted.ends.stop, wanted.ends.reward)
    assert outcome_of(outcome.events) == ends, (outcome.events[-1], output)
    assert wanted.says in said.detail
    calls = answered(outcome.events)
    least, most = wanted.calls
    assert least <= len(calls) <= most, (len(calls), output)
    assert len({call.call_id for call in calls}) == len(calls)
    assert outcome_of(outcome.neighbour) == ("PROGRAM_EXITED", 1.0), ended(outcome.neighbour)
    beside = answered(outcome.neighbour)
    assert len(beside) == outcome.neighbour_asked == len(ANSWERS)
    assert [call.link for call in beside] == [rollout_pb2.CALL_LINK_CONTINUATION] * len(ANSWERS)
    assert not outcome.left
