"""The fold: shared vectors, and the stream law under every small damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import Fold, StreamViolation, conversation, fold, transcript
from gymmesh_client.rollout import RolloutParts
from gymmesh_responses import items_to_list
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

VECTORS = sorted((Path(__file__).parents[2] / "contract" / "fold_vectors").glob("*.json"))


def events_of(vector: dict[str, Any]) -> list[pb.RolloutEvent]:
    return [json_format.ParseDict(event, pb.RolloutEvent()) for event in vector["events"]]


def test_there_are_vectors_of_both_kinds() -> None:
    bad = [path for path in VECTORS if path.name.startswith("bad_")]
    assert len(bad) >= 15
    assert len(VECTORS) - len(bad) >= 10


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_text())
    state = Fold(
        vector["rollout_id"],
        vector["attempt"],
        run_id=vector.get("run_id", ""),
        task_id=vector.get("task_id", ""),
        repeat_index=vector.get("repeat_index", 0),
    )
    events = events_of(vector)
    before = [event.SerializeToString(deterministic=True) for event in events]
    if "violates" in vector:
        with pytest.raises(StreamViolation) as caught:
            feed(state, events)
        assert caught.value.rule == vector["violates"]
    else:
        rollout = feed(state, events)
        assert rollout == json_format.ParseDict(vector["rollout"], pb.Rollout())
        assert RolloutParts.of(rollout).message() == rollout
        for call_id, items in vector["conversations"].items():
            assert items_to_list(conversation(rollout, call_id)) == items
        assert items_to_list(transcript(rollout)) == vector["transcript"]
    assert [event.SerializeToString(deterministic=True) for event in events] == before


def feed(state: Fold, events: list[pb.RolloutEvent]) -> pb.Rollout:
    for event in events:
        state.add(event)
    return state.finish()


@pytest.mark.parametrize("status", [0, 1, 2])
def test_nothing_is_taken_of_a_verdict_that_breaks_the_law(status: int) -> None:
    wrong = verdict(1.0)
    wrong.verified.verification.reward = float("nan")
    wrong.verified.verification.status = status  # type: ignore[assignment]  # any number
    events = make_events("ro-1", 1, answer("5"), wrong)
    state = Fold("ro-1")
    for event in events[:2]:
        state.add(event)
    before = state.rollout
    with pytest.raises(StreamViolation, match="unverified"):
        state.add(events[2])
    assert state.rollout == before
    state.add(make_events("ro-1", 1, answer("5"), verdict(1.0))[2])
    assert state.rollout.HasField("verified")


def whole() -> list[pb.RolloutEvent]:
    return make_events("ro-1", 1, answer("5"), verdict(1.0), completed(), task=make_task())


@given(st.data())
def test_no_event_may_be_lost_doubled_or_moved(data: st.DataObject) -> None:
    events = whole()
    at = data.draw(st.integers(0, len(events) - 1))
    damage = data.draw(st.sampled_from(["lose", "double", "swap"]))
    if damage == "lose":
        del events[at]
    elif damage == "double":
        events.insert(data.draw(st.integers(0, len(events))), events[at])
    else:
        other = data.draw(st.integers(0, len(events) - 1).filter(lambda place: place != at))
        events[at], events[other] = events[other], events[at]
    with pytest.raises(StreamViolation):
        fold(events, "ro-1")


@given(st.lists(st.integers(1, 4), max_size=6))
def test_deltas_change_nothing_but_the_numbers(places: list[int]) -> None:
    bodies = [answer("5"), verdict(1.0), completed()]
    plain = fold(make_events("ro-1", 1, *bodies), "ro-1")
    for place in places:
        delta = pb.RolloutEvent(ignorable=True)
        delta.output_delta.text = b"5"
        bodies.insert(min(place, len(bodies)) - 1, delta)
    with_deltas = fold(make_events("ro-1", 1, *bodies), "ro-1")
    assert with_deltas.model_calls == plain.model_calls
    assert with_deltas.verified == plain.verified
    assert with_deltas.completed.events == plain.completed.events + len(places)


def test_what_there_is_of_a_broken_rollout_can_be_seen() -> None:
    state = Fold("ro-1")
    for event in whole()[:2]:
        state.add(event)
    assert state.begun
    assert not state.ended
    assert [call.call_id for call in state.rollout.model_calls] == ["c1"]


def test_what_there_is_can_be_seen_and_then_go_on() -> None:
    """A look at a rollout under way changes nothing of what it becomes."""
    vector = json.loads(next(path for path in VECTORS if path.stem == "parallel_tools").read_text())
    plain, looked_at = (Fold(vector["rollout_id"], vector["attempt"]) for _ in range(2))
    for event in events_of(vector):
        plain.add(event)
        looked_at.add(event)
        looked_at.rollout.Clear()
    assert looked_at.finish() == plain.finish()


def test_a_conversation_of_no_known_call_or_in_a_circle() -> None:
    rollout = fold(whole(), "ro-1")
    with pytest.raises(ValueError, match="no model call 'c9'"):
        conversation(rollout, "c9")
    rollout.model_calls[0].parent_call_id = "c1"
    with pytest.raises(ValueError, match="a cycle"):
        conversation(rollout, "c1")
