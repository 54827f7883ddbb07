from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gymmesh_model.concurrency import Aimd


def test_it_starts_at_the_cap_and_stays_there() -> None:
    machine = Aimd(cap=8)
    assert machine.limit == 8
    assert not machine.succeeded(0.0, waiting=True)
    assert machine.limit == 8


def test_one_decrease_per_round_trip() -> None:
    machine = Aimd(cap=100, backoff=0.5)
    # Ten calls, sent together, are all refused.
    assert [machine.overloaded(1.0, 2.0 + n / 100) for n in range(10)] == [True] + [False] * 9
    assert machine.limit == 50
    # One that was sent after the decrease is news.
    assert machine.overloaded(2.0, 3.0)
    assert machine.limit == 25


def test_it_rises_by_a_step_in_a_round_trip_while_calls_wait() -> None:
    machine = Aimd(cap=100, backoff=0.5)
    machine.overloaded(0.0, 1.0)
    assert not machine.succeeded(1.0, waiting=False)
    assert not machine.succeeded(0.5, waiting=True), "sent before the decrease"
    assert machine.limit == 50
    for _ in range(50):
        machine.succeeded(1.0, waiting=True)
    assert 50.9 < machine.limit < 51.1


def test_it_does_not_rise_while_it_is_held() -> None:
    machine = Aimd(cap=10, backoff=0.5)
    machine.overloaded(0.0, 1.0)
    machine.hold(True)
    assert not machine.succeeded(2.0, waiting=True)
    machine.hold(False)
    assert machine.succeeded(2.0, waiting=True)


def test_it_settles_near_what_the_endpoint_can_take() -> None:
    """An endpoint that refuses beyond 20 at a time; a round trip is one second."""
    machine = Aimd(cap=200, backoff=0.7)
    seen = []
    for second in range(200):
        sent = int(machine.limit)
        for number in range(sent):
            if number < 20:
                machine.succeeded(float(second), waiting=True)
            else:
                machine.overloaded(float(second), second + 0.9)
        seen.append(sent)
    assert min(seen[50:]) >= 14
    assert max(seen[50:]) <= 22
    assert sum(seen[50:]) / 150 > 16


class Machine(RuleBasedStateMachine):
    """Any order of events keeps the limit within its bounds and its decreases apart."""

    @initialize(cap=st.floats(0.1, 1000), floor=st.floats(0.1, 1000), backoff=st.floats(0.05, 1.0))
    def start(self, cap: float, floor: float, backoff: float) -> None:
        self.machine = Aimd(cap=cap, floor=floor, backoff=backoff, step=max(1.0, cap / 50))
        self.now = 0.0
        self.calls: list[float] = []
        self.decreased: list[float] = []

    @rule(passes=st.floats(0, 10))
    def time_passes(self, passes: float) -> None:
        self.now += passes

    @rule()
    def begins(self) -> None:
        self.calls.append(self.now)

    @rule(data=st.data(), waiting=st.booleans())
    def ends_well(self, data: Any, waiting: bool) -> None:
        if self.calls:
            before = self.machine.limit
            started = self._one(data)
            rose = self.machine.succeeded(started, waiting)
            assert rose == (self.machine.limit > before)
            assert waiting or not rose
            assert not self.decreased or not rose or started >= self.decreased[-1]

    @rule(data=st.data())
    def is_refused(self, data: Any) -> None:
        if self.calls:
            before = self.machine.limit
            started = self._one(data)
            if self.machine.overloaded(started, self.now):
                assert not self.decreased or started >= self.decreased[-1]
                assert self.machine.limit >= before * self.machine.backoff * (1 - 1e-9)
                self.decreased.append(self.now)
            else:
                assert self.machine.limit == before

    @invariant()
    def stays_in_bounds(self) -> None:
        if hasattr(self, "machine"):
            assert self.machine.floor <= self.machine.limit <= self.machine.cap

    def _one(self, data: Any) -> float:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))


TestMachine = Machine.TestCase


@given(st.integers(1, 8), st.integers(1, 500))
def test_parts_of_a_limit_make_up_the_whole(size: int, cap: int) -> None:
    parts = [Aimd(cap=cap / size) for _ in range(size)]
    assert int(sum(part.limit for part in parts) + 1e-6) == cap
