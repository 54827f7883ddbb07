"""Places, who waits for them, and how their number follows the machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_sandbox.admission import Admission, PlaceAnswer, Pressure, Width
from gymmesh_sandbox.machine import pressure

_CALM = Pressure(memory_free=0.5, load=0.5)
_SHORT = Pressure(memory_free=0.05, load=0.5)
_BETWEEN = Pressure(memory_free=0.12, load=0.5)

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 4)),
        st.tuples(st.just("leave"), st.integers(0, 50)),
        st.tuples(st.just("release"), st.integers(0, 50)),
        st.tuples(st.just("short"), st.just(0)),
        st.tuples(st.just("calm"), st.just(0)),
    ),
    max_size=60,
)


@given(_steps)
def test_places_are_never_lost_nor_given_twice_and_waiting_is_bounded(
    steps: list[tuple[str, int]],
) -> None:
    admission = Admission(Width(5), max_waiting=3)
    asked: dict[int, int] = {}
    waiting: list[int] = []
    holding: list[int] = []
    for number, (name, value) in enumerate(steps):
        if name == "ask":
            asked[number] = value
            answer = admission.ask(number, value)
            if answer is PlaceAnswer.ADMITTED:
                assert not waiting
                holding.append(number)
            elif answer is PlaceAnswer.WAITS:
                waiting.append(number)
        elif name == "leave" and waiting:
            one = waiting.pop(value % len(waiting))
            assert admission.leave(one)
        elif name == "release" and holding:
            admission.release(asked[holding.pop(value % len(holding))])
        elif name in ("short", "calm"):
            admission.width.update(_SHORT if name == "short" else _CALM, admission.taken)
        before = admission.taken
        admitted = admission.admit()
        assert admitted == waiting[: len(admitted)]  # in the order in which they came
        waiting = waiting[len(admitted) :]
        holding += admitted
        assert admission.taken == sum(asked[one] for one in holding)
        assert admission.taken <= max(before, admission.width.now)
        assert admission.waiting == len(waiting) <= 3
        assert 1 <= admission.width.now <= 5


def test_width_shrinks_to_what_runs_and_grows_again_only_with_room_to_spare() -> None:
    width = Width(64)
    width.update(_SHORT, running=16)
    assert width.now == 16
    width.update(_BETWEEN, running=16)
    assert width.now == 16
    for _ in range(20):
        width.update(_CALM, running=16)
    assert width.now == 64


def test_load_alone_leaves_a_place_for_each_processor_and_what_runs() -> None:
    busy = Pressure(memory_free=0.9, load=20.0)
    width = Width(64, processors=4)
    width.update(busy, running=10)
    assert width.now == 10
    width.update(busy, running=0)
    assert width.now == 4
    width.update(_SHORT, running=0)
    assert width.now == 1
    width.update(busy, running=0)  # it does not grow under pressure
    assert width.now == 1


def test_more_places_than_there_can_be_are_refused_at_once() -> None:
    assert Admission(Width(4), max_waiting=9).ask(1, 5) is PlaceAnswer.REFUSED


def test_what_the_machine_says_of_itself() -> None:
    found = pressure()
    assert 0.0 <= found.memory_free <= 1.0
    assert found.load >= 0.0
