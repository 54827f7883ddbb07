"""The events that the agent keeps for a collector."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.send_buffer import SendBuffer
from gymmesh_agent.collect_stream.stream import batch_of
from gymmesh_runtime.errors import MeshError


def sent(buffer: SendBuffer, max_events: int = 100, max_bytes: int = 10_000) -> list[int]:
    """Take what may be sent; the cursors."""
    begin = buffer.sent + 1
    events = buffer.take(buffer.last, max_events=max_events, max_bytes=max_bytes)
    cursors = list(range(begin, begin + len(events)))
    assert not cursors or cursors[-1] == buffer.sent
    return cursors


def filled(count: int, *, credit: int = 0, max_bytes: int = 10_000) -> SendBuffer:
    buffer = SendBuffer(max_bytes)
    buffer.credit = credit
    for number in range(1, count + 1):
        buffer.add(b"x" * 10, (f"r{number}", 1) if number % 2 == 0 else None)
    return buffer


def test_credit_bounds_what_leaves() -> None:
    buffer = filled(5, credit=2)
    assert sent(buffer) == [1, 2]
    assert sent(buffer) == []
    buffer.credit += 10
    assert sent(buffer) == [3, 4, 5]
    assert (buffer.credit, buffer.unsent) == (7, 0)


def test_a_message_has_no_more_than_it_may() -> None:
    buffer = filled(5, credit=9)
    assert sent(buffer, max_events=2) == [1, 2]
    assert sent(buffer, max_bytes=25) == [3, 4]
    assert sent(buffer, max_bytes=5) == [5]  # one that is too large goes alone
    assert (buffer.credit, buffer.unsent) == (4, 0)


def test_what_happens_later_is_not_taken() -> None:
    buffer = filled(3, credit=9)
    until = buffer.last
    buffer.add(b"x")
    assert len(buffer.take(until, max_events=100, max_bytes=100)) == 3
    assert buffer.take(until, max_events=100, max_bytes=100) == []
    assert sent(buffer) == [4]


def test_what_is_acknowledged_is_forgotten_and_says_what_ended() -> None:
    buffer = filled(5, credit=5)
    sent(buffer)
    assert buffer.acknowledge(4) == [("r2", 1), ("r4", 1)]
    assert len(buffer) == 1
    assert buffer.acknowledge(3) == []
    assert buffer.acknowledge(5) == []
    assert (len(buffer), buffer.size) == (0, 0)


def test_nothing_can_be_acknowledged_before_it_was_sent() -> None:
    buffer = filled(5, credit=3)
    sent(buffer)
    with pytest.raises(
        MeshError, match=r"FIELD_INVALID.*but the cursor of the last sent event is 3"
    ):
        buffer.acknowledge(4)


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
    buffer = filled(5, credit=4)
    sent(buffer)
    buffer.acknowledge(acknowledged)
    assert buffer.resume(last_cursor, 100) == (goes_on_with is not None)
    if goes_on_with is not None:
        assert sent(buffer) == goes_on_with
        assert buffer.credit == 100 - len(goes_on_with)


def test_what_was_sent_on_a_broken_connection_is_not_forgotten_before_it_is_acknowledged() -> None:
    buffer = filled(5, credit=5)
    sent(buffer)
    assert buffer.resume(4, 10)
    assert buffer.resume(2, 10)  # a collector that lost what it had not stored
    assert sent(buffer) == [3, 4, 5]


def test_acknowledging_what_waits_to_be_sent_again() -> None:
    buffer = filled(4, credit=4)
    sent(buffer)
    assert buffer.resume(1, 1)
    assert buffer.acknowledge(3) == [("r2", 1)]
    assert sent(buffer) == [4]


def test_a_stream_after_a_lost_one_is_not_taken_for_it() -> None:
    fresh = SendBuffer(1000, cursor=501)
    assert not fresh.resume(500, 1)
    assert fresh.resume(0, 1)
    fresh.add(b"x")
    assert sent(fresh) == [502]
    assert fresh.resume(0, 1)
    assert sent(fresh) == [502]


def test_it_is_full_by_bytes_and_by_what_holding_many_takes() -> None:
    large, small = SendBuffer(10_000), SendBuffer(10_000)
    large.add(b"x" * 10_000)
    assert large.full
    for _ in range(62):
        small.add(b"")
    assert not small.full
    small.add(b"")
    assert small.full


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=8), st.integers(1, 2**40))
def test_a_batch_has_its_events_as_they_were(payloads: list[bytes], first: int) -> None:
    events = [
        pb.RolloutEvent(rollout_id="r", attempt=1, sequence=number, started=pb.Started(seed=number))
        for number, _ in enumerate(payloads, 1)
    ]
    for event, payload in zip(events, payloads, strict=True):
        event.model_call_completed.tokens.prompt_token_ids = payload
    batch = batch_of([event.SerializeToString() for event in events], first)
    assert batch == agent_pb2.CollectEvents(events=events, cursor=first)
