from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gymmesh_model.routing import AdaptiveWidth


def test_it_starts_at_the_cap_and_stays_there() -> None:
    machine = AdaptiveWidth(cap=8)
    assert machine.width == 8
    assert not machine.succeeded(0.0, waiting=True, now=1.0)
    assert machine.width == 8


def test_isolated_refusals_change_nothing() -> None:
    machine = AdaptiveWidth(cap=64)
    for call in range(30_000):
        if call % 15:
            machine.succeeded(call / 100, waiting=True, now=call / 100 + 0.1)
        else:
            machine.refused(call / 100, 63, call / 100)
        assert machine.width == 64


def refuse(machine: AdaptiveWidth, in_hand: int, now: float) -> None:
    """Refusals until the width changes."""
    before = machine.width
    for _ in range(1000):
        if machine.refused(now, in_hand, now):
            break
    assert machine.width < before


def test_a_full_endpoint_is_left_what_it_has_in_hand() -> None:
    machine = AdaptiveWidth(cap=40)
    refuse(machine, 30, 1.0)
    assert machine.width == 30
    assert not machine.refused(0.5, 0, 1.1), "sent before the width fell"
    refuse(machine, 3, 2.0)
    assert machine.width == 15, "never less than half at a time"


def test_the_first_refusals_of_many_do_not_count_for_more_than_those_in_hand() -> None:
    machine = AdaptiveWidth(cap=1000)
    for _ in range(50):
        machine.refused(0.0, 900, 0.0)
    assert machine.width == 1000, "the others may all be answered"


def test_one_fall_by_metrics_per_round_trip() -> None:
    machine = AdaptiveWidth(cap=100, backoff=0.5)
    assert [machine.overloaded(1.0, 2.0 + n / 100) for n in range(10)] == [True] + [False] * 9
    assert machine.width == 50
    assert machine.overloaded(2.0, 3.0)
    assert machine.width == 25


def answer(machine: AdaptiveWidth, now: float, rounds: int) -> list[int]:
    """The widths of round trips of a second in which all is answered."""
    seen = []
    for turn in range(rounds):
        started = now + turn
        for _ in range(int(machine.width)):
            machine.succeeded(started, waiting=True, now=started + 1.0)
        seen.append(int(machine.width))
    return seen


def test_after_an_outage_half_of_what_is_missing_is_back_with_each_round_trip() -> None:
    machine = AdaptiveWidth(cap=64, step=64 / 50)
    answer(machine, 0.0, 2)
    for turn in range(5000):  # everything is refused, again and again
        machine.refused(10.0 + turn / 1000, 0, 10.0 + turn / 1000)
    assert machine.width == 1
    widths = answer(machine, 20.0, 12)
    assert widths[1] >= 30
    assert widths[5] >= 54
    assert widths[-1] == 64


def test_it_rises_only_by_what_succeeds_after_the_fall_while_calls_wait() -> None:
    machine = AdaptiveWidth(cap=100)
    answer(machine, 0.0, 1)
    refuse(machine, 0, 5.0)
    assert not machine.succeeded(5.0, waiting=False, now=6.0)
    assert not machine.succeeded(4.0, waiting=True, now=6.0), "sent before the fall"
    assert machine.width == 50
    assert machine.succeeded(5.0, waiting=True, now=6.0)


def test_a_part_of_a_full_endpoint_is_given_up_now_and_then_and_returns() -> None:
    machine = AdaptiveWidth(cap=64, width=40, _safe=40.0, _resumes=1e9)
    widths = answer(machine, 0.0, 60)
    assert set(widths[:19]) == {40}
    assert min(widths) == 30
    assert sum(width < 36 for width in widths) <= 4
    assert widths[-10:].count(40) >= 5


def test_at_the_floor_no_room_is_given() -> None:
    machine = AdaptiveWidth(cap=64, floor=40, width=40, _safe=40.0, _resumes=1e9)
    for call in range(40 * 60):
        turn = float(call // 40)
        assert not machine.succeeded(turn, waiting=True, now=turn + 1.0)
    assert machine.width == 40


def test_what_refuses_by_chance_is_not_given_up() -> None:
    machine = AdaptiveWidth(cap=64)
    for turn in range(100):
        machine.refused(float(turn), 60, float(turn))
        assert answer(machine, float(turn), 1) == [64]


def test_a_whole_number_below_the_trouble_is_tried_first() -> None:
    machine = AdaptiveWidth(cap=64, step=1.28, width=9.8, _safe=9.8, _trouble=11.1)
    assert sorted(set(answer(machine, 10.0, 6)))[:3] == [9, 10, 11]


def test_it_does_not_rise_while_it_is_held() -> None:
    machine = AdaptiveWidth(cap=10)
    answer(machine, 0.0, 1)
    refuse(machine, 5, 3.0)
    machine.hold(True)
    assert not machine.succeeded(4.0, waiting=True, now=5.0)
    machine.hold(False)
    assert machine.succeeded(4.0, waiting=True, now=5.0)


class Machine(RuleBasedStateMachine):
    """Any order of events keeps the width within its bounds, and falls apart."""

    @initialize(cap=st.floats(0.1, 1000), floor=st.floats(0.1, 1000), backoff=st.floats(0.05, 1.0))
    def start(self, cap: float, floor: float, backoff: float) -> None:
        self.machine = AdaptiveWidth(cap=cap, floor=floor, backoff=backoff, step=max(1.0, cap / 50))
        self.now = 0.0
        self.calls: list[float] = []
        self.fell: list[float] = []

    @rule(passes=st.floats(0, 10))
    def time_passes(self, passes: float) -> None:
        self.now += passes

    @rule(count=st.integers(1, 30))
    def begin(self, count: int) -> None:
        self.calls += [self.now] * count

    @rule(data=st.data(), waiting=st.booleans(), count=st.integers(1, 60))
    def end_well(self, data: Any, waiting: bool, count: int) -> None:
        for _ in range(min(count, len(self.calls))):
            before = self.machine.width
            started = self._one(data)
            changed = self.machine.succeeded(started, waiting, self.now)
            assert changed == (self.machine.width != before)
            assert not self.fell or not changed or started >= self.fell[-1]

    @rule(data=st.data(), count=st.integers(1, 60))
    def are_refused(self, data: Any, count: int) -> None:
        for _ in range(min(count, len(self.calls))):
            before = self.machine.width
            self._one(data)
            changed = self.machine.refused(self.now, len(self.calls), self.now)
            assert changed == (self.machine.width != before)
            if self.machine.width < before:
                assert self.machine.width >= before / 2 or self.machine.width >= 1
                self.fell.append(self.now)

    @rule(ago=st.floats(0, 5))
    def metrics_show_overload(self, ago: float) -> None:
        before, asked = self.machine.width, self.now - ago
        if self.machine.overloaded(asked, self.now):
            assert not self.fell or asked >= self.fell[-1]
            assert self.machine.width >= before * self.machine.backoff * (1 - 1e-9)
            self.fell.append(self.now)

    @invariant()
    def stays_in_bounds(self) -> None:
        if hasattr(self, "machine"):
            assert self.machine.floor <= self.machine.width <= self.machine.cap

    def _one(self, data: Any) -> float:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))


TestMachine = Machine.TestCase


@given(st.integers(1, 8), st.integers(1, 500))
def test_parts_of_a_width_make_up_the_whole(size: int, cap: int) -> None:
    parts = [AdaptiveWidth(cap=cap / size) for _ in range(size)]
    assert int(sum(part.width for part in parts) + 1e-6) == cap
