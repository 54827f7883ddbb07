from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gymmesh_model.routing import Aimd


def test_it_starts_at_the_cap_and_stays_there() -> None:
    machine = Aimd(cap=8)
    assert machine.limit == 8
    assert not machine.succeeded(0.0, waiting=True)
    assert machine.limit == 8


def test_a_refusal_leaves_what_the_endpoint_has_in_hand() -> None:
    machine = Aimd(cap=100)
    # A hundred are sent together; it takes thirty and refuses the others one by one.
    for in_hand in range(99, 29, -1):
        machine.refused(in_hand, 1.0)
    assert machine.limit == 30
    # The refused ones try again, beside the thirty.
    assert not machine.refused(33, 2.0)
    assert machine.limit == 30


def test_one_decrease_by_metrics_per_round_trip() -> None:
    machine = Aimd(cap=100, backoff=0.5)
    assert [machine.overloaded(1.0, 2.0 + n / 100) for n in range(10)] == [True] + [False] * 9
    assert machine.limit == 50
    assert machine.overloaded(2.0, 3.0)
    assert machine.limit == 25


def test_it_rises_only_by_what_succeeds_after_the_decrease_while_calls_wait() -> None:
    machine = Aimd(cap=100)
    machine.refused(50, 1.0)
    assert not machine.succeeded(1.0, waiting=False)
    assert not machine.succeeded(0.5, waiting=True), "sent before the decrease"
    assert machine.limit == 50
    assert machine.succeeded(1.0, waiting=True)


def rounds(machine: Aimd, capacity: float, count: int, now: float = 10.0) -> list[int]:
    """The width of so many round trips at an endpoint that refuses what is beyond its capacity."""
    seen = []
    for turn in range(count):
        sent = int(machine.limit)
        seen.append(sent)
        for in_hand in range(sent - 1, int(min(sent, capacity)) - 1, -1):
            machine.refused(in_hand, now + turn)
        for _ in range(int(min(sent, capacity))):
            machine.succeeded(now + turn, waiting=True)
    return seen


def test_after_an_outage_half_of_what_is_missing_is_back_with_each_round_trip() -> None:
    machine = Aimd(cap=64, step=64 / 50)
    for turn in range(1000):  # everything is refused, again and again
        machine.refused(max(0, 63 - turn), turn / 1000)
    assert machine.limit == 1
    widths = rounds(machine, capacity=64, count=12)
    assert widths[1] >= 30
    assert widths[5] >= 54
    assert widths[-1] == 64


def test_an_outage_while_it_recovers_does_not_slow_the_next_recovery() -> None:
    machine = Aimd(cap=512, step=512 / 50)
    for _ in range(3):
        machine.refused(0, 1.0)
        machine.succeeded(1.0, waiting=True)
    machine.refused(0, 2.0)
    widths = rounds(machine, capacity=512, count=16)
    assert widths[-1] == 512


def test_it_does_not_rise_while_it_is_held() -> None:
    machine = Aimd(cap=10)
    machine.refused(5, 1.0)
    machine.hold(True)
    assert not machine.succeeded(2.0, waiting=True)
    machine.hold(False)
    assert machine.succeeded(2.0, waiting=True)


def test_it_settles_near_what_the_endpoint_can_take() -> None:
    """Refused is little in the end: at most what the steps beyond the limit add."""
    for cap in (64, 200, 1000):
        machine = Aimd(cap=cap, step=max(1.0, cap / 50))
        seen = rounds(machine, capacity=20, count=200)
        assert min(seen[20:]) >= 20
        assert sum(seen[20:]) / len(seen[20:]) < 20 + 2 * max(1.0, cap / 50)


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
            self._one(data)
            if self.machine.refused(len(self.calls), self.now):
                assert self.machine.floor <= self.machine.limit < before
                assert self.machine.limit in (self.machine.floor, len(self.calls))
                self.decreased.append(self.now)
            else:
                assert self.machine.limit == before
                assert before <= max(self.machine.floor, len(self.calls))

    @rule(ago=st.floats(0, 5))
    def metrics_show_overload(self, ago: float) -> None:
        before, asked = self.machine.limit, self.now - ago
        if self.machine.overloaded(asked, self.now):
            assert not self.decreased or asked >= self.decreased[-1]
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
