"""A limit ends its block as asyncio's timeout does, not before its time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from gymmesh_runtime import timers
from gymmesh_runtime.timers import Limit

_SHORT = 0.02  # a timer of its own
_LONG = 1.3  # a bucket


async def _expired(delay: float) -> float:
    """Waits for a limit; returns how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(TimeoutError), Limit(delay):
        await asyncio.sleep(30)
    return loop.time() - start


@pytest.mark.parametrize("delay", [_SHORT, _LONG])
async def test_a_limit_is_not_early(delay: float) -> None:
    assert await _expired(delay) >= delay - 0.01


async def test_a_delay_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        Limit(math.inf)


async def test_limits_of_one_bucket_end_their_own_blocks_but_for_those_left() -> None:
    async def work(number: int) -> int:
        limit = Limit(_LONG)
        if number % 2:
            limit.leave()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(_LONG + 0.3)
        if not number % 2:
            limit.leave()
        return limit.expired

    assert await asyncio.gather(*map(work, range(20))) == [True, False] * 10


async def test_an_earlier_limit_set_later_ends_first() -> None:
    late = asyncio.create_task(_expired(_LONG + 0.4))
    early = asyncio.create_task(_expired(_LONG))
    done, _ = await asyncio.wait({late, early}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {early}
    await late


@pytest.mark.parametrize("delay", [_SHORT, _LONG])
async def test_a_stopped_limit_may_be_set_again(delay: float) -> None:
    with Limit(delay) as limit:
        limit.stop()
        await asyncio.sleep(delay + 0.3)
    limit = Limit(delay)
    limit.stop()
    limit.set(_SHORT)
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(30)


async def test_buckets_that_ended_are_gone() -> None:
    limits = [Limit(_LONG), Limit(_LONG + 0.2)]
    for limit in limits:
        limit.leave()
    await asyncio.sleep(_LONG + 0.4)
    assert not any(limit.expired for limit in limits)
    assert timers._buckets is not None
    assert not timers._buckets.by_end


def test_loops_of_two_threads_have_their_own() -> None:
    async def wait() -> None:
        took = await asyncio.gather(*(_expired(_LONG) for _ in range(5)))
        assert min(took) >= _LONG - 0.01

    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(asyncio.run, wait()) for _ in "ab"]:
            done.result(timeout=30)


@pytest.mark.parametrize("delay", [_SHORT, _LONG])
async def test_a_limit_ends_its_block(delay: float) -> None:
    limit = Limit(delay)
    with pytest.raises(TimeoutError), limit:
        await asyncio.sleep(30)
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    with Limit(_LONG) as limit:
        await asyncio.sleep(0)
    await asyncio.sleep(_LONG + 0.3)
    assert not limit.expired


async def test_a_block_that_swallows_the_cancellation_ends_as_it_likes() -> None:
    with Limit(_SHORT) as limit, contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_the_inner_of_two_limits_ends_its_own_block() -> None:
    with Limit(60.0) as outer, pytest.raises(TimeoutError), Limit(_SHORT):
        await asyncio.sleep(30)
    assert not outer.expired


@pytest.mark.parametrize("delay", [2.0, 59.0, 61.0, 600.0, 86_400.0])
async def test_a_limit_that_is_somewhat_shorter_ends_first(
    monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """So that a model's limit, set a margin within its caller's, is what the failure names."""
    started = monotonic()
    for step in range(20):
        now = started + step / 7
        monkeypatch.setattr(timers, "monotonic", lambda now=now: now)
        with Limit(delay) as outer, Limit(delay - 0.15) as inner:
            assert timers._buckets is not None
            ends = {id(limits): end for end, limits in timers._buckets.by_end.items()}
            assert ends[id(inner._bucket)] < ends[id(outer._bucket)]


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with Limit(_SHORT):
            try:
                await asyncio.sleep(30)
            finally:
                # Both: the time is up, and somebody cancelled the task as well.
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_limit_says_whether_it_alone_cancelled() -> None:
    task = asyncio.current_task()
    assert task is not None
    limit = Limit(_SHORT)
    assert not limit.alone
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    assert limit.alone
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    assert not limit.alone
    limit.leave()
    assert task.uncancel() == 0
