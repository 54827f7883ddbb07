"""Answers are handed on so many in one turn of the loop, all of them, and in order."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh_model.http1.turnstile import Turnstile


async def _turn() -> None:
    await asyncio.sleep(0)


async def test_few_are_given_at_once() -> None:
    loop = asyncio.get_running_loop()
    stile: Turnstile[int] = Turnstile(loop, most=3)
    waiters = [loop.create_future() for _ in range(3)]
    for number, waiter in enumerate(waiters):
        stile.give(waiter, number)
    assert [one.result() for one in waiters] == [0, 1, 2]


@pytest.mark.parametrize("count", [4, 7, 100])
async def test_many_take_turns_and_none_is_lost(count: int) -> None:
    loop = asyncio.get_running_loop()
    stile: Turnstile[int] = Turnstile(loop, most=3)
    order: list[int] = []
    waiters = []
    for number in range(count):
        waiter: asyncio.Future[int] = loop.create_future()
        waiter.add_done_callback(lambda done: order.append(done.result()))
        waiters.append(waiter)
        stile.give(waiter, number)
    done = 3
    for _ in range(2 * count):
        now = sum(one.done() for one in waiters)
        assert now <= done
        done = now + 3
        await _turn()
    assert all(one.done() for one in waiters)
    await _turn()
    assert order == list(range(count))


async def test_a_waiter_that_left_takes_no_place() -> None:
    loop = asyncio.get_running_loop()
    stile: Turnstile[int] = Turnstile(loop, most=1)
    first, left, last = (loop.create_future() for _ in range(3))
    for number, waiter in enumerate((first, left, last)):
        stile.give(waiter, number)
    left.cancel()
    await _turn()
    assert first.result() == 0
    assert last.result() == 2


async def test_it_comes_to_rest_and_works_again() -> None:
    loop = asyncio.get_running_loop()
    stile: Turnstile[int] = Turnstile(loop, most=1)
    for number in range(3):
        waiter = loop.create_future()
        stile.give(waiter, number)
        assert waiter.result() == number
        for _ in range(4):
            await _turn()
        assert not stile._turning
