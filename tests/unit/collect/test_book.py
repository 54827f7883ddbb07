"""What a collector asked for, what came, and what is stored."""

from __future__ import annotations

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collect_stream.book import Asked, Book, cancels_message, packed_starts
from gymmesh_runtime.errors import MeshError, to_status
from gymmesh_runtime.wire.twins import EventBatch, PackedEvents
from tests.support.rollouts import completed, make_events, verdict


def packed(batch: agent_pb2.CollectEvents) -> EventBatch:
    events: EventBatch = PackedEvents.FromString(batch.SerializeToString())
    return events


class Desk:
    """A book and what it handed over."""

    def __init__(self) -> None:
        self.book = Book()
        self.came: dict[str, list[int]] = {}
        self.ended: dict[str, BaseException | None] = {}
        self._cursor = 0

    def ask(self, rollout_id: str, *, sent: bool = True, held: bool = True) -> Asked:
        def sink(event: pb.RolloutEvent) -> None:
            self.came.setdefault(rollout_id, []).append(event.sequence)

        def done(error: BaseException | None) -> None:
            assert rollout_id not in self.ended
            self.ended[rollout_id] = error

        request = agent_pb2.RunRolloutRequest(rollout_id=rollout_id, attempt=1)
        packed = request.SerializeToString()
        asked = Asked((rollout_id, 1), packed, 10.0, sink, done, held=held, sent=sent)
        self.book.enter(asked)
        return asked

    def take(self, *events: pb.RolloutEvent, cursor: int | None = None) -> None:
        self._cursor = cursor or self._cursor + len(events)
        batch = agent_pb2.CollectEvents(cursor=self._cursor, events=events)
        assert self.book.take(packed(batch)) == len(events)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def rollout(rollout_id: str) -> list[pb.RolloutEvent]:
    return make_events(rollout_id, 1, verdict(1.0), completed())


def starts_said(asked: list[Asked], now: float) -> list[agent_pb2.CollectStart]:
    message = agent_pb2.CollectRequest.FromString(packed_starts(asked, now))
    return list(message.starts.starts)


def test_an_event_does_not_hold_its_batch() -> None:
    came: list[pb.RolloutEvent] = []
    request = agent_pb2.RunRolloutRequest(rollout_id="a", attempt=1).SerializeToString()
    book = Book()
    book.enter(Asked(("a", 1), request, 10.0, came.append, lambda _: None, sent=True))
    batch = packed(agent_pb2.CollectEvents(cursor=3, events=rollout("a")))
    # They are no parts of a message: each is made from bytes of its own.
    assert [type(event) for event in batch.events] == [bytes] * 3
    book.take(batch)
    assert came == rollout("a")


def test_events_reach_those_who_asked(desk: Desk) -> None:
    desk.ask("a")
    desk.ask("b")
    a, b = rollout("a"), rollout("b")
    desk.take(a[0], b[0], b[1])
    desk.take(a[1], b[2], a[2])
    assert desk.came == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert desk.ended == {"a": None, "b": None}
    assert not desk.book.in_flight


def test_a_batch_that_came_before_is_dropped(desk: Desk) -> None:
    desk.ask("a")
    a = rollout("a")
    desk.take(*a[:2], cursor=2)
    desk.take(*a[:2], cursor=2)
    desk.take(a[0], cursor=1)
    desk.take(a[2], cursor=3)
    assert desk.came == {"a": [1, 2, 3]}
    assert desk.book.stale == 0


def test_an_agent_that_batches_otherwise_after_a_break_repeats_nothing(desk: Desk) -> None:
    desk.ask("a")
    a = rollout("a")
    desk.take(a[0], a[1], cursor=7)
    desk.book.welcomed(resumed=True, address="x")
    desk.take(*a, cursor=8)
    assert desk.came == {"a": [1, 2, 3]}


def test_a_repeated_event_without_a_break_is_the_readers_to_judge(desk: Desk) -> None:
    desk.ask("a")
    a = rollout("a")
    desk.take(a[0], a[0])
    assert desk.came == {"a": [1, 1]}


def test_late_events_are_counted_and_reach_nobody(desk: Desk) -> None:
    desk.ask("a")
    assert desk.book.abandon(("a", 1))
    desk.take(*rollout("a"))
    assert desk.came == {}
    assert desk.book.stale == 3


def test_an_attempt_that_the_agent_never_heard_of_needs_no_cancelling(desk: Desk) -> None:
    desk.ask("a", sent=False)
    assert not desk.book.abandon(("a", 1))


def test_an_attempt_is_in_flight_once(desk: Desk) -> None:
    desk.ask("a")
    with pytest.raises(MeshError, match="ROLLOUT_EXISTS"):
        desk.ask("a")


def test_acknowledged_is_what_is_stored(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.ask(name)
    a, b, c = rollout("a"), rollout("b"), rollout("c")
    desk.take(a[0], b[0], c[0])
    assert desk.book.acknowledged == 3  # no outcome in it: it must be received, and is
    desk.take(a[1], a[2])
    desk.take(b[1], b[2])
    desk.take(c[1])
    assert desk.book.acknowledged == 3
    assert desk.book.stored(("b", 1))
    assert desk.book.acknowledged == 3  # a's outcome is before it
    assert desk.book.stored(("a", 1))
    assert desk.book.acknowledged == 8
    assert not desk.book.stored(("a", 1))
    assert not desk.book.stored(("unknown", 1))


def test_outcomes_that_nobody_holds_are_acknowledged_as_they_come(desk: Desk) -> None:
    desk.ask("a", held=False)
    desk.take(*rollout("a"))
    assert desk.book.acknowledged == 3


def test_attempts_that_end_without_an_outcome_hold_nothing_back(desk: Desk) -> None:
    desk.ask("a")
    desk.take(rollout("a")[0])
    desk.book.abandon(("a", 1))
    desk.take(*rollout("a")[1:])
    assert desk.book.acknowledged == 3


def test_refusals_end_in_the_agents_error(desk: Desk) -> None:
    desk.ask("a")
    desk.ask("b")
    full = MeshError(errors_pb2.ERROR_REASON_QUEUE_FULL, "full", retry_after_s=1.5)
    refs = [agent_pb2.AttemptRef(rollout_id="a"), agent_pb2.AttemptRef(rollout_id="unknown")]
    desk.book.refused(agent_pb2.CollectStartRefused(attempts=refs, status=to_status(full)))
    error = desk.ended["a"]
    assert isinstance(error, MeshError)
    assert (error.reason_name, error.retry_after_s) == ("QUEUE_FULL", 1.5)
    assert list(desk.book.in_flight) == [("b", 1)]


def test_after_a_break_what_may_be_lost_is_said_again(desk: Desk) -> None:
    for name in ("heard", "silent", "gone"):
        desk.ask(name)
    desk.take(rollout("heard")[0])
    desk.book.abandon(("gone", 1))
    hello = desk.book.hello("s", 5, "1.0")
    assert (hello.last_cursor, hello.credit) == (1, 5)
    starts, cancels = desk.book.welcomed(resumed=True, address="x")
    assert [one.key for one in starts] == [("silent", 1)]
    assert cancels == [("gone", 1)]
    desk.take(*rollout("gone"))
    assert desk.book.welcomed(resumed=True, address="x")[1] == []


def test_a_lost_stream_ends_all_that_was_sent(desk: Desk) -> None:
    for name in ("heard", "silent"):
        desk.ask(name)
    desk.ask("unsent", sent=False)
    desk.take(rollout("heard")[0])
    starts, cancels = desk.book.welcomed(resumed=False, address="x:1")
    assert [one.key for one in starts] == [("unsent", 1)]
    assert cancels == []
    assert desk.book.hello("s", 1, "1.0").last_cursor == 0
    for name in ("heard", "silent"):
        error = desk.ended[name]
        assert isinstance(error, MeshError)
        assert error.reason_name == "PEER_UNAVAILABLE"
    assert desk.ended["heard"] is not desk.ended["silent"]
    desk.take(*rollout("unsent"), cursor=3)
    assert desk.ended["unsent"] is None


def test_a_reader_that_objects_ends_its_attempt_and_no_other(desk: Desk) -> None:
    picky, other = desk.ask("a"), desk.ask("b")
    problem = ValueError("no")

    def object_(event: pb.RolloutEvent) -> None:
        raise problem

    picky.sink = object_
    desk.take(rollout("a")[0], *rollout("b"))
    assert desk.ended == {"a": problem, "b": None}
    assert desk.book.unwanted == [("a", 1)]
    assert other.sequence == 3


def test_messages_say_the_time_that_is_left(desk: Desk) -> None:
    starts = starts_said([desk.ask("a"), desk.ask("b")], now=8.75)
    assert [(one.request.rollout_id, one.timeout_ms) for one in starts] == [
        ("a", 1250),
        ("b", 1250),
    ]
    late = starts_said([desk.ask("c")], now=99.0)
    assert late[0].timeout_ms == 1  # zero would mean no deadline
    refs = cancels_message([("a", 1), ("b", 2)]).cancels.attempts
    assert [(one.rollout_id, one.attempt) for one in refs] == [("a", 1), ("b", 2)]
