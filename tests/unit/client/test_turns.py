"""A burst of work is spread over the loop's turns, in order, and all of it is done."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh_client.collector.row_maker import Turns


@pytest.mark.parametrize(("count", "most"), [(1, 3), (3, 3), (10, 3), (7, 1)])
async def test_a_burst_is_spread(count: int, most: int) -> None:
    turns, done, in_turn = Turns(most), list[int](), dict[int, int]()
    turn = 0

    async def one(number: int) -> None:
        await turns.take()
        done.append(number)
        in_turn[turn] = in_turn.get(turn, 0) + 1

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
        while len(done) < count:
            assert turn < 10 * count
            turn += 1
            await asyncio.sleep(0)
    assert done == list(range(count))
    assert max(in_turn.values()) <= most


async def test_once_all_is_done_there_is_a_place_at_once() -> None:
    turns = Turns(1)
    for _ in range(3):
        with pytest.raises(StopIteration):  # it did not wait
            turns.take().send(None)
        for _ in range(3):
            await asyncio.sleep(0)
