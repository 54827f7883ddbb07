"""A program's main conversation that may not be its work: told once in a run, and not of others."""

from __future__ import annotations

import json
import logging

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.outcomes import MemoryOutput
from gymmesh_client.collector.recorder import Recorder
from gymmesh_client.rollout import RolloutParts, fold
from gymmesh_client.summary import Tally
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

TOOLS = json.dumps({"model": "m", "tools": [{"type": "function", "name": "shell"}]}).encode()
NONE = b'{"model": "m", "tools": []}'


def made(*calls: tuple[str, str, bytes | None], rollout_id: str = "ro-1") -> RolloutParts:
    """A rollout of calls: the actor, what the call is for, and what it asked for."""
    events: list[pb.RolloutEvent] = []
    for number, (actor, side_call, asked) in enumerate(calls, 1):
        event = answer("x", f"c{number}")
        event.model_call_completed.actor = actor
        event.model_call_completed.side_call = side_call
        events.append(event)
        if asked is not None:
            note = pb.Annotation(
                key="script.gateway_request", value_json=asked, model_call_id=f"c{number}"
            )
            events.append(pb.RolloutEvent(annotation=note, ignorable=True))
    events += [verdict(1.0), completed()]
    return RolloutParts.of(fold(make_events(rollout_id, 1, *events), rollout_id))


async def told(caplog: pytest.LogCaptureFixture, *rollouts: RolloutParts) -> list[str]:
    recorder = Recorder(MemoryOutput(), Tally(), lambda rollout, attempt: None, None)
    with caplog.at_level(logging.WARNING, "gymmesh.collect"):
        for parts in rollouts:
            await recorder.completed(make_task(), parts)
    return [one.message for one in caplog.records]


TITLE_FIRST = (("", "", NONE), ("conversation-1", "", TOOLS), ("conversation-1", "", None))


async def test_work_behind_a_title_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rollouts = [made(*TITLE_FIRST, rollout_id=f"ro-{number}") for number in (1, 2)]
    (said,) = await told(caplog, *rollouts)
    assert said.startswith("rollout ro-1: the main conversation is one call without tools")
    assert "conversation-1 made calls with tools" in said
    assert "side_calls" in said


@pytest.mark.parametrize(
    "calls",
    [
        (("title", "title", NONE), ("", "", TOOLS), ("", "", None)),
        (("", "", NONE), ("", "", None), ("subagent-1", "", TOOLS)),
        (("", "", TOOLS), ("conversation-1", "", TOOLS)),
        (("", "", NONE), ("conversation-1", "", NONE)),
        (("", "", NONE), ("suggestion", "suggestion", TOOLS)),
        (("", "", None), ("conversation-1", "", None)),
        (("", "", b'{"tools": 1}'), ("conversation-1", "", b'{"tools": {}}')),
        (("", "", NONE),),
    ],
)
async def test_other_rollouts_say_nothing(
    caplog: pytest.LogCaptureFixture, calls: tuple[tuple[str, str, bytes | None], ...]
) -> None:
    assert await told(caplog, made(*calls)) == []
