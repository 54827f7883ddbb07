"""A burst of work is spread over the loop's turns, in order, and all of it is done."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh_client.turns import Turns


@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 3), (10, 3), (7, 1)])
async def test_a_burst_is_spread(count: int, most: int) -> None:
    turns, done, in_turn = Turns(most), list[int](), dict[int, int]()
    turn = 0

    def one(number: int) -> None:
        done.append(number)
        in_turn[turn] = in_turn.get(turn, 0) + 1

    for number in range(count):
        turns.call(one, number)
    assert len(turns.waiting) == max(0, count - most)
    while len(done) < count:
        assert turn < 10 * count
        turn += 1
        await asyncio.sleep(0)
    assert done == list(range(count))
    assert max(in_turn.values()) <= most
    assert not turns.waiting


async def test_what_comes_while_others_wait_comes_after_them() -> None:
    turns, done = Turns(1), list[int]()
    turns.call(done.append, 0)
    turns.call(done.append, 1)
    assert done == [0], "the second one has to wait for its turn"
    await asyncio.sleep(0)
    turns.call(done.append, 2)
    assert done == [0, 1], "and its turn has no place left for a third"
    await asyncio.sleep(0)
    assert done == [0, 1, 2]


async def test_once_all_is_done_there_is_a_place_at_once() -> None:
    turns, done = Turns(1), list[int]()
    for number in range(3):
        turns.call(done.append, number)
        for _ in range(3):
            await asyncio.sleep(0)
        assert done[-1] == number
