"""Final states that were to be kept and were not: told once, and counted by environment."""

from __future__ import annotations

import json
import logging

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.outcomes import MemoryOutput
from gymmesh_client.collector.recorder import Recorder
from gymmesh_client.rollout import RolloutParts, fold
from gymmesh_client.rows import completed_line
from gymmesh_client.summary import Tally, render, summarize
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

WHY = "state.start is a Clock, which can't be written as JSON"


def ended(rollout_id: str, state: pb.FinalState | None) -> RolloutParts:
    verified = verdict(1.0)
    verified.verified.verification.verifier = "math"
    if state is not None:
        verified.verified.final_state.CopyFrom(state)
    events = make_events(rollout_id, 1, answer("5"), verified, completed())
    return RolloutParts.of(fold(events, rollout_id))


async def test_a_state_that_is_not_kept_is_told_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tally, omitted = Tally(), pb.FinalState(omitted=WHY)
    recorder = Recorder(MemoryOutput(), tally, lambda rollout, attempt: None, None)
    states = (None, pb.FinalState(state_json=b"{}"), omitted, pb.FinalState(omitted="too large"))
    with caplog.at_level(logging.WARNING, "gymmesh.collect"):
        for number, state in enumerate(states):
            await recorder.completed(make_task(), ended(f"ro-{number}", state))
    (said,) = [one.message for one in caplog.records]
    assert said.startswith("the final state of sessions of math is not kept")
    assert WHY in said
    assert tally.states_omitted == {"math": 2}
    summary = summarize(tally, requested=4, wall_s=1.0, repeats=1, output="o", failures_output="f")
    assert summary.to_dict()["states_not_kept"] == {"math": 2}
    assert f"not kept      state of 2 rollouts of math: {WHY}" in render(summary)


@pytest.mark.parametrize("state", [None, pb.FinalState(state_json=b"{}")])
def test_a_state_that_is_kept_or_not_wanted_says_nothing(state: pb.FinalState | None) -> None:
    tally = Tally()
    tally.add(completed_line(make_task(), ended("ro-1", state))[1])
    assert not tally.states_omitted


def test_rows_of_an_earlier_session_count() -> None:
    tally = Tally()
    line, _ = completed_line(make_task(), ended("ro-1", pb.FinalState(omitted=WHY)))
    tally.add_row(json.loads(line), kept=True)
    tally.add_row(json.loads(line) | {"final_state": "damaged"}, kept=True)
    assert tally.states_omitted == {"math": 1}
