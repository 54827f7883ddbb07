"""The queue of a stream: order, bounds and batches, between many senders and one writer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.wire.mux.outbox import Outbox, OutboxClosed


def small(**bounds: int) -> Outbox[int]:
    return Outbox(batch_items=4, batch_bytes=1000, **bounds)


async def taken(outbox: Outbox[int]) -> list[int]:
    return await asyncio.wait_for(outbox.batch(), 60)


@given(st.lists(st.lists(st.integers(0, 1500), max_size=12), max_size=8))
def test_items_leave_in_order_each_once_in_batches_within_the_bounds(
    turns: list[list[int]],
) -> None:
    async def run() -> None:
        outbox, sizes, got = small(), list[int](), list[int]()
        for turn in turns:
            for size in turn:
                outbox.put(len(sizes), size)
                sizes.append(size)
            while outbox.queued_items > len(turn) // 2:
                batch = await taken(outbox)
                assert 1 <= len(batch) <= 4
                assert sum(sizes[item] for item in batch) <= 1000 or len(batch) == 1
                got += batch
        outbox.close()
        while batch := await taken(outbox):
            got += batch
        assert got == list(range(len(sizes)))

    asyncio.run(run())


async def test_what_one_turn_brings_leaves_together() -> None:
    outbox: Outbox[int] = Outbox()
    batch = asyncio.create_task(taken(outbox))
    await asyncio.sleep(0)
    for number in range(100):
        outbox.put(number, 1)
    assert await batch == list(range(100))


async def test_nothing_waits_for_a_later_turn() -> None:
    outbox: Outbox[int] = Outbox()
    for number in range(3):
        outbox.put(number, 1)
        batch = asyncio.create_task(outbox.batch())
        await asyncio.sleep(0)
        assert batch.done()
        assert batch.result() == [number]


async def test_senders_wait_for_room_in_order() -> None:
    outbox = small(max_queued_items=4, max_queued_bytes=100)
    for number in range(4):
        outbox.put(number, 1)
    assert outbox.full

    async def send(number: int) -> None:
        await outbox.room()
        outbox.put(number, 1)

    senders = [asyncio.create_task(send(number)) for number in range(4, 14)]
    await asyncio.sleep(0)
    senders[0].cancel()
    got: list[int] = []
    while len(got) < 13:
        got += await taken(outbox)
        assert outbox.queued_items <= 4
    assert got == [0, 1, 2, 3, *range(5, 14)]
    await asyncio.gather(*senders, return_exceptions=True)


async def test_bytes_count_as_well_as_items() -> None:
    outbox = small(max_queued_bytes=100)
    outbox.put(0, 99)
    assert not outbox.full
    await outbox.room()
    outbox.put(1, 1)
    assert outbox.full
    outbox.put(2, 1)  # what may not wait is taken all the same
    assert await taken(outbox) == [0, 1, 2]
    assert not outbox.full


async def test_a_closed_outbox_gives_what_it_has_and_refuses_more() -> None:
    outbox = small(max_queued_items=5)
    for number in range(6):
        outbox.put(number, 1)
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    outbox.close()
    with pytest.raises(OutboxClosed):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(OutboxClosed):
        outbox.put(6, 1)
    with pytest.raises(OutboxClosed):
        await outbox.room()
    assert [await taken(outbox) for _ in range(4)] == [[0, 1, 2, 3], [4, 5], [], []]


async def test_closing_wakes_the_writer() -> None:
    outbox = small()
    batch = asyncio.create_task(taken(outbox))
    await asyncio.sleep(0)
    outbox.close()
    assert await batch == []


async def test_a_writer_that_is_cancelled_loses_nothing() -> None:
    outbox = small()
    batch = asyncio.create_task(outbox.batch())
    await asyncio.sleep(0)
    outbox.put(0, 1)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert await taken(outbox) == [0]
