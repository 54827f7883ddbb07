"""The agent's buffer and the collector's state over a wire that breaks: the laws of Collect."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.collect_stream.send_buffer import SendBuffer
from gymmesh_agent.collect_stream.stream import batch_of
from gymmesh_client.collect_stream.state import ClientState, StreamedAttempt

_BOUND = 8_000
_LENGTH = 6  # events of an attempt


@dataclass(eq=False)
class _Attempt:
    """One attempt, as seen from both ends."""

    rollout_id: str
    made: int = 0  # events that happened at the agent
    came: list[int] = field(default_factory=list)
    ends: list[BaseException | None] = field(default_factory=list)
    stored: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.rollout_id, 1


def _event(attempt: _Attempt) -> pb.RolloutEvent:
    event = pb.RolloutEvent(rollout_id=attempt.rollout_id, attempt=1, sequence=attempt.made)
    if attempt.made == _LENGTH:
        event.completed.events = _LENGTH
    else:
        event.turn_completed.model_call_id = "x" * (attempt.made * 7 % 50)
    return event


def _message(batch: list[tuple[int, bytes]]) -> agent_pb2.CollectEvents:
    """A batch of events, each with its cursor, as it crosses the wire."""
    packed = batch_of([data for _, data in batch], batch[-1][0]).SerializeToString()
    return agent_pb2.CollectEvents.FromString(packed)


class Exchange(RuleBasedStateMachine):
    """Any order of events, batches, cuts, repeats, credit, acknowledgements and lost agents."""

    @initialize(credit=st.integers(1, 4))
    def begin(self, credit: int) -> None:
        self.state = ClientState()
        self.attempts: list[_Attempt] = []
        self.alive: dict[tuple[str, int], _Attempt] = {}  # at the agent
        self.buffer = SendBuffer(_BOUND)
        self.buffer.credit = credit
        self.welcomes = 0
        self._connect(credit, resumed=True)

    def _connect(self, credit: int, *, resumed: bool) -> None:
        self.wire: list[tuple[int, bytes]] = []
        self.sent_before: list[agent_pb2.CollectEvents] = []
        self.granted, self.spent = credit, 0
        starts, _ = self.state.connected(resumed=resumed, address="a:1")
        for asked in starts:
            asked.sent = True
            self.alive.setdefault(asked.key, self._attempt(asked.key))

    def _attempt(self, key: tuple[str, int]) -> _Attempt:
        return next(one for one in self.attempts if one.key == key)

    @rule()
    def ask(self) -> None:
        attempt = _Attempt(f"r{len(self.attempts)}")
        self.attempts.append(attempt)
        request = agent_pb2.RunRolloutRequest(rollout_id=attempt.rollout_id, attempt=1)
        asked = StreamedAttempt(
            attempt.key,
            request,
            0.0,
            lambda event: attempt.came.append(event.sequence),
            attempt.ends.append,
            held=True,
            sent=True,
        )
        self.state.add(asked)
        self.alive[attempt.key] = attempt

    @precondition(lambda self: self.alive and not self.buffer.full)
    @rule(data=st.data())
    def happen(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(list(self.alive.values())))
        attempt.made += 1
        last = attempt.made == _LENGTH
        self.buffer.add(_event(attempt).SerializeToString(), attempt.key if last else None)
        if last:
            del self.alive[attempt.key]

    @rule(max_events=st.integers(1, 5), max_bytes=st.integers(1, 300))
    def send(self, max_events: int, max_bytes: int) -> None:
        before, unsent = self.buffer.sent, self.buffer.unsent
        events = self.buffer.take(self.buffer.last, max_events=max_events, max_bytes=max_bytes)
        assert len(events) <= max_events
        assert sum(map(len, events)) <= max_bytes or len(events) == 1
        assert bool(events) == (unsent > 0 and self.granted > self.spent)
        self.spent += len(events)
        self.wire += enumerate(events, before + 1)

    @precondition(lambda self: self.wire)
    @rule(count=st.integers(1, 10))
    def deliver(self, count: int) -> None:
        batch, self.wire = self.wire[:count], self.wire[count:]
        message = _message(batch)
        self.sent_before.append(message)
        assert self.state.take(message) == len(batch)

    @precondition(lambda self: self.sent_before)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        self.state.take(data.draw(st.sampled_from(self.sent_before)))

    @rule(more=st.integers(1, 4))
    def grant(self, more: int) -> None:
        self.granted += more
        self.buffer.credit += more

    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        ready = [one for one in self.attempts if one.ends == [None] and not one.stored]
        if ready:
            attempt = data.draw(st.sampled_from(ready))
            attempt.stored = True
            self.state.stored(attempt.key)

    @rule()
    def acknowledge(self) -> None:
        self.buffer.acknowledge(self.state.acknowledged)

    @rule(credit=st.integers(1, 4))
    def cut(self, credit: int) -> None:
        hello = self.state.hello("s", credit, "1.0")
        assert self.buffer.resume(hello.last_cursor, hello.credit)
        self._connect(credit, resumed=True)

    @rule(credit=st.integers(1, 4))
    def cut_twice(self, credit: int) -> None:
        hello = self.state.hello("s", credit, "1.0")
        assert self.buffer.resume(hello.last_cursor, hello.credit)
        self._send_all()  # lost, all of it
        self.cut(credit)

    @rule(credit=st.integers(1, 4))
    def lose_the_agent(self, credit: int) -> None:
        hello = self.state.hello("s", credit, "1.0")
        self.alive.clear()
        resumed = hello.last_cursor == 0
        self.buffer = SendBuffer(_BOUND, cursor=hello.last_cursor + (not resumed))
        assert resumed or not self.buffer.resume(hello.last_cursor, credit)
        assert self.buffer.resume(0, credit)
        if resumed:
            # Nothing had come: the agent starts again what it is asked for again.
            for attempt in self.attempts:
                if not attempt.ends:
                    assert not attempt.came
                    attempt.made = 0
        self._connect(credit, resumed=resumed)

    @rule()
    def abandon(self) -> None:
        if self.state.in_flight:
            key = next(iter(self.state.in_flight))
            assert self.state.abandon(key)
            self._attempt(key).ends.append(RuntimeError("abandoned"))

    @invariant()
    def each_event_once_and_in_order(self) -> None:
        for attempt in getattr(self, "attempts", []):
            assert attempt.came == list(range(1, len(attempt.came) + 1))
            assert len(attempt.ends) <= 1
            if attempt.ends == [None]:
                assert len(attempt.came) == _LENGTH

    @invariant()
    def credit_is_kept(self) -> None:
        if hasattr(self, "granted"):
            assert self.spent <= self.granted

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "buffer"):
            assert self.buffer.size < _BOUND + 300  # one event beyond the bound

    @invariant()
    def nothing_is_acknowledged_before_it_is_stored(self) -> None:
        if not hasattr(self, "state"):
            return
        for cursor, attempt in self._outcomes():
            assert attempt.stored or attempt.ends != [None] or self.state.acknowledged < cursor

    def _outcomes(self) -> list[tuple[int, _Attempt]]:
        return [(cursor, self._attempt(key)) for cursor, key in self.buffer._ends]

    def _send_all(self) -> list[tuple[int, bytes]]:
        begin = self.buffer.sent + 1
        events = self.buffer.take(self.buffer.last, max_events=10_000, max_bytes=1_000_000)
        return list(enumerate(events, begin))

    def teardown(self) -> None:
        """In the end, once everything flows, everything has come and is forgotten."""
        if not hasattr(self, "state"):
            return
        self.cut(1)
        for attempt in list(self.alive.values()):
            while attempt.made < _LENGTH:
                attempt.made += 1
                last = attempt.made == _LENGTH
                self.buffer.add(_event(attempt).SerializeToString(), attempt.key if last else None)
        self.buffer.credit = 10_000
        batch = self._send_all()
        if batch:
            self.state.take(_message(batch))
        for attempt in self.attempts:
            assert len(attempt.ends) == 1
            self.state.stored(attempt.key)
        self.buffer.acknowledge(self.state.acknowledged)
        assert not self.state.in_flight
        assert len(self.buffer) == self.buffer.size == 0


TestExchange = Exchange.TestCase
TestExchange.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
