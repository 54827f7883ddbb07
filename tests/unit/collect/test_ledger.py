"""What the agent keeps for a collector."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect.ledger import Ledger
from gymmesh_agent.collect.line import packed_events
from gymmesh_runtime.errors import MeshError


def sent(ledger: Ledger, max_events: int = 100, max_bytes: int = 10_000) -> list[int]:
    """Take what may be sent; the cursors."""
    begin = ledger.at + 1
    events = ledger.take(ledger.last, max_events=max_events, max_bytes=max_bytes)
    cursors = list(range(begin, begin + len(events)))
    assert not cursors or cursors[-1] == ledger.at
    return cursors


def filled(count: int, *, credit: int = 0, max_bytes: int = 10_000) -> Ledger:
    ledger = Ledger(max_bytes)
    ledger.credit = credit
    for number in range(1, count + 1):
        ledger.push(b"x" * 10, (f"r{number}", 1) if number % 2 == 0 else None)
    return ledger


def test_credit_bounds_what_leaves() -> None:
    ledger = filled(5, credit=2)
    assert sent(ledger) == [1, 2]
    assert sent(ledger) == []
    ledger.credit += 10
    assert sent(ledger) == [3, 4, 5]
    assert (ledger.credit, ledger.unsent) == (7, 0)


def test_a_message_has_no_more_than_it_may() -> None:
    ledger = filled(5, credit=9)
    assert sent(ledger, max_events=2) == [1, 2]
    assert sent(ledger, max_bytes=25) == [3, 4]
    assert sent(ledger, max_bytes=5) == [5]  # one that is too large goes alone
    assert (ledger.credit, ledger.unsent) == (4, 0)


def test_what_happens_later_is_not_taken() -> None:
    ledger = filled(3, credit=9)
    until = ledger.last
    ledger.push(b"x")
    assert len(ledger.take(until, max_events=100, max_bytes=100)) == 3
    assert ledger.take(until, max_events=100, max_bytes=100) == []
    assert sent(ledger) == [4]


def test_what_is_acknowledged_is_forgotten_and_says_what_ended() -> None:
    ledger = filled(5, credit=5)
    sent(ledger)
    assert ledger.acknowledge(4) == [("r2", 1), ("r4", 1)]
    assert len(ledger) == 1
    assert ledger.acknowledge(3) == []
    assert ledger.acknowledge(5) == []
    assert (len(ledger), ledger.size) == (0, 0)


def test_nothing_can_be_acknowledged_before_it_was_sent() -> None:
    ledger = filled(5, credit=3)
    sent(ledger)
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
    sent(ledger)
    ledger.acknowledge(acknowledged)
    assert ledger.resume(last_cursor, 100) == (goes_on_with is not None)
    if goes_on_with is not None:
        assert sent(ledger) == goes_on_with
        assert ledger.credit == 100 - len(goes_on_with)


def test_what_was_sent_on_a_broken_connection_is_not_forgotten_before_it_is_acknowledged() -> None:
    ledger = filled(5, credit=5)
    sent(ledger)
    assert ledger.resume(4, 10)
    assert ledger.resume(2, 10)  # a collector that lost what it had not stored
    assert sent(ledger) == [3, 4, 5]


def test_acknowledging_what_waits_to_be_sent_again() -> None:
    ledger = filled(4, credit=4)
    sent(ledger)
    assert ledger.resume(1, 1)
    assert ledger.acknowledge(3) == [("r2", 1)]
    assert sent(ledger) == [4]


def test_a_stream_after_a_lost_one_is_not_taken_for_it() -> None:
    fresh = Ledger(1000, cursor=501)
    assert not fresh.resume(500, 1)
    assert fresh.resume(0, 1)
    fresh.push(b"x")
    assert sent(fresh) == [502]
    assert fresh.resume(0, 1)
    assert sent(fresh) == [502]


def test_it_is_full_by_bytes_and_by_what_holding_many_takes() -> None:
    large, small = Ledger(10_000), Ledger(10_000)
    assert large.push(b"x" * 10_000)
    assert large.full
    assert [small.push(b"") for _ in range(63)] == [False] * 62 + [True]
    assert small.full


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(1, 2**40))
def test_a_batch_has_its_events_as_they_were(payloads: list[bytes], first: int) -> None:
    events = [
        pb.RolloutEvent(rollout_id="r", attempt=1, sequence=number, started=pb.Started(seed=number))
        for number, _ in enumerate(payloads, 1)
    ]
    for event, payload in zip(events, payloads, strict=True):
        event.model_call_completed.tokens.prompt_token_ids = payload
    packed = packed_events([event.SerializeToString() for event in events], first)
    message = agent_pb2.CollectResponse.FromString(packed)
    assert list(message.events.events) == events
    assert message.events.cursor == first
    assert message.SerializeToString(deterministic=True) == packed
