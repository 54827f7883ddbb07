"""What the agent keeps for a collector."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect.ledger import Entry, Ledger
from gymmesh_agent.collect.line import events_message, messages
from gymmesh_runtime.errors import MeshError


def cursors(entries: list[Entry]) -> list[int]:
    return [entry.cursor for entry in entries]


def filled(count: int, *, credit: int = 0, max_bytes: int = 10_000) -> Ledger:
    ledger = Ledger(max_bytes)
    ledger.credit = credit
    for number in range(1, count + 1):
        ledger.push(b"x" * 10, (f"r{number}", 1) if number % 2 == 0 else None)
    return ledger


def test_credit_bounds_what_leaves() -> None:
    ledger = filled(5, credit=2)
    assert cursors(ledger.release()) == [1, 2]
    assert ledger.release() == []
    ledger.credit += 10
    assert cursors(ledger.release()) == [3, 4, 5]
    assert (ledger.credit, ledger.unsent) == (7, 0)


def test_an_event_passes_on_only_when_none_waits_before_it() -> None:
    ledger = Ledger(10_000)
    assert ledger.pass_on(b"1") is None
    ledger.credit = 3
    assert ledger.pass_on(b"2") is None
    assert cursors(ledger.release()) == [1, 2]
    third = ledger.pass_on(b"3")
    assert third is not None
    assert (third.cursor, ledger.credit, ledger.unsent) == (3, 0, 0)
    assert ledger.pass_on(b"4") is None
    assert ledger.acknowledge(3) == []


def test_what_is_acknowledged_is_forgotten_and_says_what_ended() -> None:
    ledger = filled(5, credit=5)
    ledger.release()
    assert ledger.acknowledge(4) == [("r2", 1), ("r4", 1)]
    assert len(ledger) == 1
    assert ledger.acknowledge(3) == []
    assert ledger.acknowledge(5) == []
    assert (len(ledger), ledger.size) == (0, 0)


def test_nothing_can_be_acknowledged_before_it_was_sent() -> None:
    ledger = filled(5, credit=3)
    ledger.release()
    with pytest.raises(MeshError, match=r"FIELD_INVALID.*beyond the last event sent, 3"):
        ledger.acknowledge(4)


@pytest.mark.parametrize(
    ("acknowledged", "last_cursor", "goes_on_with"),
    [
        (0, 0, [1, 2, 3, 4, 5]),
        (0, 2, [3, 4, 5]),
        (2, 2, [3, 4, 5]),
        (2, 4, [5]),  # nothing that the collector has is sent again
        (2, 1, None),  # forgotten
        (0, 5, None),  # never sent
    ],
)
def test_resuming(acknowledged: int, last_cursor: int, goes_on_with: list[int] | None) -> None:
    ledger = filled(5, credit=4)
    ledger.release()
    ledger.acknowledge(acknowledged)
    assert ledger.resume(last_cursor, 100) == (goes_on_with is not None)
    if goes_on_with is not None:
        assert cursors(ledger.release()) == goes_on_with
        assert ledger.credit == 100 - len(goes_on_with)


def test_what_was_sent_on_a_broken_connection_is_not_forgotten_before_it_is_acknowledged() -> None:
    ledger = filled(5, credit=5)
    ledger.release()
    assert ledger.resume(4, 10)
    assert ledger.resume(2, 10)  # a collector that lost what it had not stored
    assert cursors(ledger.release()) == [3, 4, 5]


def test_acknowledging_what_waits_to_be_sent_again() -> None:
    ledger = filled(4, credit=4)
    ledger.release()
    assert ledger.resume(1, 1)
    assert ledger.acknowledge(3) == [("r2", 1)]
    assert cursors(ledger.release()) == [4]


def test_a_stream_after_a_lost_one_is_not_taken_for_it() -> None:
    fresh = Ledger(1000, cursor=501)
    assert not fresh.resume(500, 1)
    assert fresh.resume(0, 1)
    fresh.push(b"x")
    assert cursors(fresh.release()) == [502]
    assert fresh.resume(0, 1)
    assert cursors(fresh.release()) == [502]


def test_it_is_full_by_bytes_and_by_what_holding_many_takes() -> None:
    large, small = Ledger(10_000), Ledger(10_000)
    large.push(b"x" * 10_000)
    assert large.full
    for _ in range(100):
        small.push(b"")
    assert small.full


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(1, 2**40))
def test_a_batch_has_its_events_as_they_were(payloads: list[bytes], first: int) -> None:
    events = [
        pb.RolloutEvent(rollout_id="r", attempt=1, sequence=number, started=pb.Started(seed=number))
        for number, _ in enumerate(payloads, 1)
    ]
    for event, payload in zip(events, payloads, strict=True):
        event.model_call_completed.tokens.prompt_token_ids = payload
    entries = [
        Entry(first + place, event.SerializeToString(), None) for place, event in enumerate(events)
    ]
    message = agent_pb2.CollectResponse.FromString(events_message(entries).SerializeToString())
    assert list(message.events.events) == events
    assert message.events.cursor == entries[-1].cursor


def test_events_side_by_side_share_a_message_and_the_order_stays() -> None:
    load = agent_pb2.CollectResponse(load=agent_pb2.CollectLoad(running=1))
    entries = [Entry(number, b"", None) for number in range(1, 5)]
    made = list(messages([entries[0], entries[1], load, entries[2], load, load, entries[3]]))
    assert [one.WhichOneof("message") for one in made] == [
        "events",
        "load",
        "events",
        "load",
        "load",
        "events",
    ]
    assert [one.events.cursor for one in made if one.HasField("events")] == [2, 3, 4]
