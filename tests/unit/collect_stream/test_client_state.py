"""What a collector asked for, what came, and what is stored."""

from __future__ import annotations

import pytest

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collect_stream.state import ClientState, StreamedAttempt
from gymmesh_runtime.errors import MeshError, to_status
from tests.support.rollouts import completed, make_events, verdict


class Client:
    """A state and what it handed over."""

    def __init__(self) -> None:
        self.state = ClientState()
        self.came: dict[str, list[int]] = {}
        self.ended: dict[str, BaseException | None] = {}
        self._cursor = 0

    def ask(self, rollout_id: str, *, sent: bool = True, held: bool = True) -> StreamedAttempt:
        def sink(event: pb.RolloutEvent) -> None:
            self.came.setdefault(rollout_id, []).append(event.sequence)

        def done(error: BaseException | None) -> None:
            assert rollout_id not in self.ended
            self.ended[rollout_id] = error

        request = agent_pb2.RunRolloutRequest(rollout_id=rollout_id, attempt=1)
        asked = StreamedAttempt((rollout_id, 1), request, 10.0, sink, done, held=held, sent=sent)
        self.state.add(asked)
        return asked

    def take(self, *events: pb.RolloutEvent, cursor: int | None = None) -> None:
        self._cursor = cursor or self._cursor + len(events)
        batch = agent_pb2.CollectEvents(cursor=self._cursor, events=events)
        assert self.state.take(batch) == len(events)


@pytest.fixture
def client() -> Client:
    return Client()


def rollout(rollout_id: str) -> list[pb.RolloutEvent]:
    return make_events(rollout_id, 1, verdict(1.0), completed())


def test_an_event_does_not_hold_its_batch() -> None:
    came: list[pb.RolloutEvent] = []
    request = agent_pb2.RunRolloutRequest(rollout_id="a", attempt=1)
    state = ClientState()
    state.add(StreamedAttempt(("a", 1), request, 10.0, came.append, lambda _: None, sent=True))
    batch = agent_pb2.CollectEvents(cursor=3, events=rollout("a"))
    state.take(batch)
    assert came == rollout("a")
    # A part of a message holds the memory of all of it.
    assert not any(own is part for own, part in zip(came, batch.events, strict=True))


def test_events_reach_those_who_asked(client: Client) -> None:
    client.ask("a")
    client.ask("b")
    a, b = rollout("a"), rollout("b")
    client.take(a[0], b[0], b[1])
    client.take(a[1], b[2], a[2])
    assert client.came == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert client.ended == {"a": None, "b": None}
    assert not client.state.in_flight


def test_a_batch_that_came_before_is_dropped(client: Client) -> None:
    client.ask("a")
    a = rollout("a")
    client.take(*a[:2], cursor=2)
    client.take(*a[:2], cursor=2)
    client.take(a[0], cursor=1)
    client.take(a[2], cursor=3)
    assert client.came == {"a": [1, 2, 3]}
    assert client.state.stale == 0


def test_an_agent_that_batches_otherwise_after_a_break_repeats_nothing(client: Client) -> None:
    client.ask("a")
    a = rollout("a")
    client.take(a[0], a[1], cursor=7)
    client.state.connected(resumed=True, address="x")
    client.take(*a, cursor=8)
    assert client.came == {"a": [1, 2, 3]}


def test_a_repeated_event_without_a_break_is_the_readers_to_judge(client: Client) -> None:
    client.ask("a")
    a = rollout("a")
    client.take(a[0], a[0])
    assert client.came == {"a": [1, 1]}


def test_late_events_are_counted_and_reach_nobody(client: Client) -> None:
    client.ask("a")
    assert client.state.abandon(("a", 1))
    client.take(*rollout("a"))
    assert client.came == {}
    assert client.state.stale == 3


def test_an_attempt_that_the_agent_never_heard_of_needs_no_cancelling(client: Client) -> None:
    client.ask("a", sent=False)
    assert not client.state.abandon(("a", 1))


def test_an_attempt_is_in_flight_once(client: Client) -> None:
    client.ask("a")
    with pytest.raises(MeshError, match="ROLLOUT_EXISTS"):
        client.ask("a")


def test_acknowledged_is_what_is_stored(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.ask(name)
    a, b, c = rollout("a"), rollout("b"), rollout("c")
    client.take(a[0], b[0], c[0])
    assert client.state.acknowledged == 3  # no outcome in it: it must be received, and is
    client.take(a[1], a[2])
    client.take(b[1], b[2])
    client.take(c[1])
    assert client.state.acknowledged == 3
    assert client.state.stored(("b", 1))
    assert client.state.acknowledged == 3  # a's outcome is before it
    assert client.state.stored(("a", 1))
    assert client.state.acknowledged == 8
    assert not client.state.stored(("a", 1))
    assert not client.state.stored(("unknown", 1))


def test_outcomes_that_nobody_holds_are_acknowledged_as_they_come(client: Client) -> None:
    client.ask("a", held=False)
    client.take(*rollout("a"))
    assert client.state.acknowledged == 3


def test_attempts_that_end_without_an_outcome_hold_nothing_back(client: Client) -> None:
    client.ask("a")
    client.take(rollout("a")[0])
    client.state.abandon(("a", 1))
    client.take(*rollout("a")[1:])
    assert client.state.acknowledged == 3


def test_refusals_end_in_the_agents_error(client: Client) -> None:
    client.ask("a")
    client.ask("b")
    full = MeshError(errors_pb2.ERROR_REASON_QUEUE_FULL, "full", retry_after_s=1.5)
    refs = [agent_pb2.AttemptRef(rollout_id="a"), agent_pb2.AttemptRef(rollout_id="unknown")]
    client.state.refused(agent_pb2.CollectStartRefused(attempts=refs, status=to_status(full)))
    error = client.ended["a"]
    assert isinstance(error, MeshError)
    assert (error.reason_name, error.retry_after_s) == ("QUEUE_FULL", 1.5)
    assert list(client.state.in_flight) == [("b", 1)]


def test_after_a_break_what_may_be_lost_is_said_again(client: Client) -> None:
    for name in ("heard", "silent", "gone"):
        client.ask(name)
    client.take(rollout("heard")[0])
    client.state.abandon(("gone", 1))
    hello = client.state.hello("s", 5, "1.0")
    assert (hello.last_cursor, hello.credit) == (1, 5)
    starts, cancels = client.state.connected(resumed=True, address="x")
    assert [one.key for one in starts] == [("silent", 1)]
    assert cancels == [("gone", 1)]
    client.take(*rollout("gone"))
    assert client.state.connected(resumed=True, address="x")[1] == []


def test_a_lost_stream_ends_all_that_was_sent(client: Client) -> None:
    for name in ("heard", "silent"):
        client.ask(name)
    client.ask("unsent", sent=False)
    client.take(rollout("heard")[0])
    starts, cancels = client.state.connected(resumed=False, address="x:1")
    assert [one.key for one in starts] == [("unsent", 1)]
    assert cancels == []
    assert client.state.hello("s", 1, "1.0").last_cursor == 0
    for name in ("heard", "silent"):
        error = client.ended[name]
        assert isinstance(error, MeshError)
        assert error.reason_name == "PEER_UNAVAILABLE"
    assert client.ended["heard"] is not client.ended["silent"]
    client.take(*rollout("unsent"), cursor=3)
    assert client.ended["unsent"] is None


def test_a_reader_that_objects_ends_its_attempt_and_no_other(client: Client) -> None:
    picky, other = client.ask("a"), client.ask("b")
    problem = ValueError("no")

    def object_(event: pb.RolloutEvent) -> None:
        raise problem

    picky.sink = object_
    client.take(rollout("a")[0], *rollout("b"))
    assert client.ended == {"a": problem, "b": None}
    assert client.state.unwanted == [("a", 1)]
    assert other.sequence == 3
