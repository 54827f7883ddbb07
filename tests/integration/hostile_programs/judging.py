"""What must hold of a hostile program, of what its rollout became, and of the one beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import from_status
from tests.integration.hostile_programs.cases import PROGRAMS
from tests.integration.hostile_programs.world import ANSWERS, Events, hostile_world
from tests.support.optional import require


def programs_after(target: str) -> list[str]:
    """The names of the programs that are after one part of a mesh."""
    return [name for name, one in PROGRAMS.items() if one.after == target]


async def play(program: str, place: Path) -> None:
    """Runs a program: it gets nothing, its rollout has the end that is written beside it, and the
    rollout beside it is right.
    """
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    async with hostile_world(place) as world:
        outcome = await world.run(PROGRAMS[program], os.getpid())
    wanted, said = PROGRAMS[program], ended(outcome.events)
    output = said.output_tail.decode(errors="replace")
    assert "BREACH" not in output, output
    assert outcome.touched == 0, f"{outcome.touched} connections reached the machine"
    ends = wanted.ends.failed or (wanted.ends.stop, wanted.ends.reward)
    assert outcome_of(outcome.events) == ends, (outcome.events[-1], output)
    assert wanted.says in said.detail, said.detail
    calls = answered(outcome.events)
    least, most = wanted.calls
    assert least <= len(calls) <= most, (len(calls), output)
    assert len({call.call_id for call in calls}) == len(calls), "a call is recorded twice"
    assert outcome_of(outcome.neighbour) == ("PROGRAM_EXITED", 1.0), ended(outcome.neighbour)
    beside = answered(outcome.neighbour)
    assert len(beside) == outcome.neighbour_asked == len(ANSWERS), beside
    assert all(call.link == rollout_pb2.CALL_LINK_CONTINUATION for call in beside), beside
    assert not outcome.left, outcome.left


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
