"""Rows are linear in their calls, and large ones do not hold up the loop."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import FailedAttempt, Fold, fold
from gymmesh_client.attempt import AgentCall
from gymmesh_client.collector.row_maker import RowMaker
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line, failure_line
from gymmesh_responses import loads
from gymmesh_rows import read_row
from tests.scale.bench_rows import events_of, notes_of
from tests.support.rollouts import answer, completed, failed, make_events, make_task, verdict

MANY = 400  # calls


def parts_of(calls: int) -> RolloutParts:
    state = Fold("ro-1", 1, "run-1", "t-1")
    for event in events_of(calls):
        state.add(event)
    return state.parts()


def test_a_row_is_linear_in_its_calls() -> None:
    small, large = (len(completed_line(make_task(), parts_of(calls))[0]) for calls in (50, MANY))
    assert large < 1.05 * small * MANY / 50


def test_a_row_is_made_without_holding_all_that_stands_in_it() -> None:
    state = Fold("ro-1")
    for event in notes_of(15_000):
        state.add(event)
    parts = state.parts()
    completed_line(make_task(), parts)
    tracemalloc.start()
    try:
        line, _ = completed_line(make_task(), parts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(line)  # 44 times it, where all elements of its lists exist at once


def test_the_last_prompt_of_many_is_whole() -> None:
    row = read_row(completed_line(make_task(), parts_of(MANY))[0])
    prompt = row.prompt(row.calls[-1])
    assert prompt is not None
    assert len(prompt) == 200 * MANY - 100
    path = row.path(row.calls[-1])
    assert len(row.opening) + sum(len(row.part(call)) for call in path) == 1 + 2 * MANY


def test_annotations_and_turns_are_added_in_place() -> None:
    state = Fold("ro-1")
    events = notes_of(90)
    for event in events[:7]:
        state.add(event)
    lists = (state.calls, state.turns, state.annotations)
    for event in events[7:]:
        state.add(event)
    assert [len(one) for one in lists] == [30, 30, 30]
    row = read_row(completed_line(make_task(), state.parts())[0])
    assert [len(one) for one in (row.calls, row.turns, row.annotations)] == [30, 30, 30]


@pytest.mark.parametrize("ends", ["completed", "failed", "message"])
async def test_others_go_on_while_a_large_row_is_made(ends: str) -> None:
    maker, parts = RowMaker(), parts_of(MANY)
    parts.size = 1 << 20
    message = parts.message()
    if ends == "completed":
        made: asyncio.Future[object] = asyncio.ensure_future(maker.completed(make_task(), parts))
    elif ends == "message":
        made = asyncio.ensure_future(maker.message(parts))
    else:
        attempt = FailedAttempt(pb.Failure(boundary=pb.BOUNDARY_MODEL), message)
        made = asyncio.ensure_future(maker.failed(make_task(), attempt))
    turns = 0
    while not made.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1  # made in the loop, it is there after the first
    await made


@pytest.mark.parametrize("ends", ["overdue", "broken", "cancelled"])
async def test_others_go_on_while_a_large_attempt_that_broke_off_is_copied(ends: str) -> None:
    state = Fold("ro-1", 1, "run-1", "t-1")
    call = AgentCall(agent_pb2.RunRolloutRequest(), "agent", state)
    for event in events_of(MANY)[:-2]:
        call._add(event)
    failing = {
        "overdue": lambda: call.overdue(1.0),
        "broken": lambda: call.broken(ValueError("no")),
        "cancelled": lambda: call.cancelled("nobody wants it"),
    }
    failed = asyncio.ensure_future(failing[ends]())
    turns = 0
    while not failed.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 1  # copied in the loop, it is there after the first
    partial = (await failed).partial
    assert len(partial.model_calls) == MANY


async def test_a_recorded_rollout_lets_its_messages_go() -> None:
    parts = parts_of(MANY)
    parts.size = 1 << 20
    await RowMaker().release(parts)
    assert (parts.calls, parts.tools) == ([], [])


def test_a_failed_rollout_whose_calls_form_no_tree_has_its_row() -> None:
    lost = answer("4", "c2")
    lost.model_call_completed.parent_call_id = "nowhere"
    events = make_events("ro-1", 1, answer("5"), lost, failed(), task=make_task())
    rollout = fold(events, "ro-1")
    row = loads(failure_line(make_task(), FailedAttempt(rollout.failed.failure, rollout)))
    assert row["response"]["output"] == []
    assert [one["call_id"] for one in row["calls"]] == ["c1", "c2"]
    assert [one["items"][0]["content"] for one in row["calls"]] == ["5", "4"]


def test_a_failed_rollout_that_is_not_json_has_its_failure() -> None:
    broken = answer("5")
    broken.model_call_completed.response.output[0].message.overlay_json = b"{"
    rollout = fold(make_events("ro-1", 1, broken, failed(), task=make_task()), "ro-1")
    row = loads(failure_line(make_task(), FailedAttempt(rollout.failed.failure, rollout)))
    assert row["failure"]["boundary"] == "MODEL"
    assert (row["rollout_id"], row["attempt"], row["reward"]) == ("ro-1", 1, None)
    assert "calls" not in row


def test_a_turn_reward_that_is_not_finite_is_refused() -> None:
    turn = pb.RolloutEvent()
    turn.turn_completed.turn, turn.turn_completed.reward = 1, float("nan")
    events = make_events("ro-1", 1, answer("5"), turn, verdict(1.0), completed())
    with pytest.raises(ValueError, match="reward: nan is not a JSON number"):
        completed_line(make_task(), RolloutParts.of(fold(events, "ro-1")))
