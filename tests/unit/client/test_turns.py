"""A burst of work is spread over the loop's turns, in order, and all of it is done."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gymmesh_client.turns import Turns


@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 3), (10, 3), (7, 1)])
async def test_a_burst_is_spread(count: int, most: int) -> None:
    turns, done, in_turn = Turns(most), list[int](), dict[int, int]()
    turn = 0

    async def one(number: int) -> None:
        if turns.full():
            await turns.mine()
        done.append(number)
        in_turn[turn] = in_turn.get(turn, 0) + 1

    working = [asyncio.create_task(one(number)) for number in range(count)]
    while not all(task.done() for task in working):
        assert turn < 10 * count
        await asyncio.sleep(0)
        turn += 1
    assert done == list(range(count))
    assert max(in_turn.values()) <= 2 * most  # a turn of ours may span two of theirs
    for _ in range(3):
        await asyncio.sleep(0)
    assert not turns.full()


async def test_one_that_is_cancelled_holds_up_nobody() -> None:
    turns = Turns(1)
    assert not turns.full()
    assert turns.full()
    first, second = (asyncio.create_task(turns.mine()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 5)
    assert first.cancelled()


async def test_what_is_called_waits_its_turn_beside_who_waits() -> None:
    turns, done = Turns(2), list[int]()
    for number in range(3):
        turns.call(partial(done.append, number))
    waiting = asyncio.create_task(turns.mine())
    await asyncio.sleep(0)
    turns.call(lambda: done.append(3))
    await asyncio.wait_for(waiting, 5)
    while len(done) < 4:
        await asyncio.wait_for(asyncio.sleep(0), 5)
    assert done == [0, 1, 2, 3]
    turns = Turns(1)
    turns.call(lambda: done.append(4))
    turns.call(lambda: done.append(5))
    assert done[4:] == [4], "the second one has to wait for its turn"
    await asyncio.sleep(0)
    assert done[4:] == [4, 5]
