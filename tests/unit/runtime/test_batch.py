"""The batching layer: its laws without a socket or a clock, and its edge on a loop."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.wire.batch import BatchLimits, Coalescer, Outbox, OutboxClosed

LIMITS = BatchLimits(max_items=5, max_bytes=100, delay_s=0.5)


@dataclass(frozen=True)
class Add:
    size: int
    urgent: bool
    delay_s: float | None


@dataclass(frozen=True)
class Take:
    pass


@dataclass(frozen=True)
class Wait:
    seconds: float


STEPS = st.lists(
    st.one_of(
        st.builds(Add, st.integers(0, 150), st.booleans(), st.one_of(st.none(), st.floats(0, 1))),
        st.builds(Take),
        st.builds(Wait, st.floats(0, 1)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_laws_of_a_coalescer(steps: list[Add | Take | Wait]) -> None:
    coalescer: Coalescer[int] = Coalescer(LIMITS)
    now, added, taken = 100.0, 0, 0
    came: list[tuple[float, int]] = []  # until when it may wait, and size of each item
    for step in steps:
        if isinstance(step, Wait):
            now += step.seconds
        elif isinstance(step, Add):
            flush = coalescer.add(added, step.size, now, urgent=step.urgent, delay_s=step.delay_s)
            delay = LIMITS.delay_s if step.delay_s is None else min(step.delay_s, LIMITS.delay_s)
            came.append((now if step.urgent else now + delay, step.size))
            added += 1
            due = coalescer.due()
            assert due is not None
            assert flush == (due <= now)
            assert flush or not step.urgent
        else:
            batch = coalescer.take(now)
            assert batch == list(range(taken, taken + len(batch)))  # in order, once each
            assert bool(batch) == (taken < added)  # something whenever something waits
            assert len(batch) <= LIMITS.max_items
            size = sum(came[index][1] for index in batch)
            assert size <= LIMITS.max_bytes or len(batch) == 1
            taken += len(batch)
        assert len(coalescer.items) == added - taken
        assert coalescer.size == sum(size for _, size in came[taken:])
        due = coalescer.due()
        if taken == added:
            assert due is None
        else:
            assert due is not None
            assert due <= max(min(until for until, _ in came[taken:]), now)
            if coalescer.size >= LIMITS.max_bytes or len(coalescer.items) >= LIMITS.max_items:
                assert due <= now
    while len(coalescer.items):
        taken += len(coalescer.take(now))
    assert taken == added


def test_a_lone_item_in_a_quiet_stream_leaves_at_once() -> None:
    coalescer: Coalescer[str] = Coalescer(LIMITS)
    assert coalescer.add("a", 1, 10.0)
    assert coalescer.take(10.0) == ["a"]
    assert coalescer.add("b", 1, 10.5)  # half a second later it is quiet again


def test_a_busy_stream_gathers() -> None:
    coalescer: Coalescer[str] = Coalescer(LIMITS)
    coalescer.add("a", 1, 10.0)
    coalescer.take(10.0)
    assert not coalescer.add("b", 1, 10.125)
    assert not coalescer.add("c", 1, 10.25)
    assert coalescer.due() == 10.5  # after the batch before, not after the item
    assert coalescer.take(10.5) == ["b", "c"]


def test_a_clock_that_goes_back_holds_nothing_up() -> None:
    coalescer: Coalescer[str] = Coalescer(LIMITS)
    coalescer.add("a", 1, 1000.0)
    coalescer.take(1000.0)
    coalescer.add("b", 1, 10.0)
    due = coalescer.due()
    assert due is not None
    assert due <= 10.0 + LIMITS.delay_s


SLOW = BatchLimits(max_items=4, max_bytes=1000, delay_s=math.inf)


async def taken(outbox: Outbox[int]) -> list[int]:
    return await asyncio.wait_for(outbox.batch(), 60)


async def test_what_one_turn_brings_leaves_together() -> None:
    outbox: Outbox[int] = Outbox(BatchLimits(max_items=1000, delay_s=0.0))
    batch = asyncio.create_task(taken(outbox))
    await asyncio.sleep(0)
    for number in range(100):
        outbox.put(number, 1)
    assert await batch == list(range(100))


async def test_a_burst_waits_for_the_timer_and_not_longer() -> None:
    outbox: Outbox[int] = Outbox(BatchLimits(delay_s=1.0))
    outbox.put(0, 1)
    assert await taken(outbox) == [0]
    outbox.put(1, 1)
    batch = asyncio.create_task(taken(outbox))
    await asyncio.sleep(0)
    assert not batch.done()
    outbox.put(2, 1)
    assert await batch == [1, 2]  # nothing but the timer brings it


async def test_an_item_that_is_in_more_of_a_hurry_brings_the_timer_forward() -> None:
    outbox: Outbox[int] = Outbox(BatchLimits(delay_s=1000.0))
    outbox.put(0, 1)
    assert await taken(outbox) == [0]
    outbox.put(1, 1)
    outbox.put(2, 1, delay_s=0.01)
    outbox.put(3, 1)
    assert await taken(outbox) == [1, 2, 3]


async def test_urgent_items_and_full_batches_do_not_wait() -> None:
    outbox: Outbox[int] = Outbox(SLOW)
    outbox.put(0, 1)
    assert await taken(outbox) == [0]
    outbox.put(1, 1)
    outbox.put(2, 1, urgent=True)
    assert await taken(outbox) == [1, 2]
    for number in range(3, 8):
        outbox.put(number, 1)
    assert await taken(outbox) == [3, 4, 5, 6]
    assert await taken(outbox) == [7]  # left over: it has waited already
    outbox.put(8, 1000)
    assert await taken(outbox) == [8]


async def test_senders_wait_for_room_in_order() -> None:
    limits = BatchLimits(max_items=4, delay_s=0.0)
    outbox: Outbox[int] = Outbox(limits, max_queued_items=4, max_queued_bytes=100)
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
    outbox: Outbox[int] = Outbox(SLOW, max_queued_bytes=100)
    outbox.put(0, 99)
    assert not outbox.full
    await outbox.room()
    outbox.put(1, 1)
    assert outbox.full
    outbox.put(2, 1)  # what may not wait is taken all the same
    assert outbox.waiting.size == 101


async def test_a_closed_outbox_gives_what_it_has_and_refuses_more() -> None:
    outbox: Outbox[int] = Outbox(SLOW, max_queued_items=5)
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
    outbox: Outbox[int] = Outbox(SLOW)
    batch = asyncio.create_task(taken(outbox))
    await asyncio.sleep(0)
    outbox.close()
    assert await batch == []


async def test_a_writer_that_is_cancelled_loses_nothing() -> None:
    outbox: Outbox[int] = Outbox(SLOW)
    batch = asyncio.create_task(outbox.batch())
    await asyncio.sleep(0)
    outbox.put(0, 1)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    assert await taken(outbox) == [0]
