"""Answers are handed on so many in one turn of the loop, all of them, like beside like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gymmesh_model.http1.turnstile import Turnstile

BUSY = 1000  # calls in flight


def stile(
    most: int, crowd: int = BUSY, alike: Callable[[int], Any] = lambda _: 0
) -> Turnstile[int]:
    return Turnstile(asyncio.get_running_loop(), lambda: crowd, alike, most)


def waiting(count: int, order: list[int] | None = None) -> list[asyncio.Future[int]]:
    """Futures; `order` gets their results as they come."""
    waiters = [asyncio.get_running_loop().create_future() for _ in range(count)]
    if order is not None:
        for waiter in waiters:
            waiter.add_done_callback(lambda done: order.append(done.result()))
    return waiters


async def test_with_few_in_flight_each_is_given_at_once() -> None:
    one, waiters = stile(most=3, crowd=32), waiting(33)
    for number, waiter in enumerate(waiters):
        one.give(waiter, number)
    assert [waiter.result() for waiter in waiters] == list(range(33))


@pytest.mark.parametrize("count", [1, 4, 7, 100])
async def test_with_many_they_take_turns_and_none_is_lost(count: int) -> None:
    order: list[int] = []
    one, waiters = stile(most=3), waiting(count, order)
    for number, waiter in enumerate(waiters):
        one.give(waiter, number)
    assert not any(waiter.done() for waiter in waiters)
    await waiters[0]
    done = 3
    while True:
        now = sum(waiter.done() for waiter in waiters)
        assert now <= done
        if now == count:
            break
        done = now + 3
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == list(range(count))


async def test_of_one_turn_those_that_are_alike_follow_one_another() -> None:
    order: list[int] = []
    one, waiters = stile(most=6, alike=lambda result: result % 2), waiting(8, order)
    for number, waiter in enumerate(waiters):
        one.give(waiter, number)
    await asyncio.wait(waiters)
    await asyncio.sleep(0)
    assert order == [0, 2, 4, 1, 3, 5, 6, 7], "and nobody is overtaken by a later turn"


async def test_what_comes_while_others_wait_is_given_with_them() -> None:
    one, (first, second) = stile(most=3), waiting(2)
    one.give(first, 0)
    await asyncio.sleep(0)
    assert not first.done()
    one.give(second, 1)
    await first
    assert second.result() == 1


async def test_a_waiter_that_left_takes_no_place_of_another() -> None:
    one, (first, left, last) = stile(most=1), waiting(3)
    for number, waiter in enumerate((first, left, last)):
        one.give(waiter, number)
    left.cancel()
    one.give(left, 3)
    assert [await first, await last] == [0, 2]


async def test_it_comes_to_rest_and_works_again() -> None:
    one = stile(most=1)
    for number in range(3):
        (waiter,) = waiting(1)
        one.give(waiter, number)
        assert await waiter == number
        assert not one._turning
