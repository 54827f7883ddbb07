"""Addresses that could not be reached: how long they are passed over, and who tries again."""

from __future__ import annotations

from gymmesh_runtime.wire.unreached import Unreached


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_are_reached_at_first() -> None:
    unreached = Unreached()
    assert not unreached
    assert not unreached.passes_over("a")
    unreached.tries("a")
    assert not unreached


def test_calls_that_fail_together_are_one_miss() -> None:
    clock = Clock()
    unreached = Unreached(clock)
    for _ in range(100):
        unreached.missed("a")
    assert unreached
    assert unreached.passes_over("a")
    assert not unreached.passes_over("b")
    clock.now += 0.6
    assert not unreached.passes_over("a")


def test_one_call_tries_and_the_others_wait_for_it() -> None:
    clock = Clock()
    unreached = Unreached(clock)
    unreached.missed("a")
    clock.now += 0.6
    unreached.tries("a")
    assert unreached.passes_over("a")
    clock.now += 5.0
    assert unreached.passes_over("a"), "it may take a while to find that nobody is there"
    unreached.reached("a")
    assert not unreached.passes_over("a")
    assert not unreached


def test_a_try_that_says_nothing_holds_nobody_up_for_ever() -> None:
    clock = Clock()
    unreached = Unreached(clock)
    unreached.missed("a")
    clock.now += 0.6
    unreached.tries("a")
    clock.now += 15.0
    assert not unreached.passes_over("a")


def test_the_pause_grows_to_the_length_of_a_lease() -> None:
    clock = Clock()
    unreached = Unreached(clock)
    pauses = []
    unreached.missed("a")
    for _ in range(8):
        began = clock.now
        while unreached.passes_over("a"):
            clock.now += 0.125
        pauses.append(clock.now - began)
        unreached.tries("a")
        unreached.missed("a")
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    unreached.reached("a")
    unreached.missed("a")
    clock.now += 0.5
    assert not unreached.passes_over("a"), "it begins anew"
