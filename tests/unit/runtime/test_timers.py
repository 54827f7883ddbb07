"""Timers ring once, in order and not before their time; a limit ends a block as asyncio's does."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Callable

import pytest

from gymmesh_runtime.timers import Limit, Timer, Wheel, call_within
from tests.unit.runtime.probe import until

_SHORT = 0.02  # the loop's own timers
_LONG = 1.3  # a bucket


@pytest.mark.parametrize("delay", [_SHORT, _LONG])
async def test_rings_once_and_not_too_early(delay: float) -> None:
    loop = asyncio.get_running_loop()
    rung: list[float] = []
    start = loop.time()
    call_within(delay, lambda: rung.append(loop.time() - start))
    await until(lambda: rung)
    await asyncio.sleep(0.1)
    assert len(rung) == 1
    assert rung[0] >= delay - 0.01


async def test_a_delay_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        call_within(math.inf, lambda: None)


async def test_those_of_one_bucket_ring_together_but_for_the_stopped() -> None:
    rung: list[int] = []

    def ring(number: int) -> Callable[[], None]:
        return lambda: rung.append(number)

    timers = [call_within(_LONG, ring(number)) for number in range(20)]
    for timer in timers[::2]:
        timer.stop()
    timers[0].stop()  # harmless
    await asyncio.sleep(_LONG + 0.3)
    timers[1].stop()  # harmless, too
    assert sorted(rung) == list(range(1, 20, 2))


async def test_a_wheel_that_rang_is_empty() -> None:
    wheel = Wheel(asyncio.get_running_loop())
    timers = [Limit(_LONG, wheel), Limit(_LONG + 0.2, wheel)]
    for timer in timers:
        timer.leave()
    await asyncio.sleep(_LONG + 0.3)
    assert not any(timer.expired for timer in timers)
    assert not wheel.buckets


async def test_an_earlier_timer_set_later_rings_first() -> None:
    rung: list[str] = []
    call_within(_LONG + 0.4, lambda: rung.append("late"))
    call_within(_LONG, lambda: rung.append("early"))
    await until(lambda: len(rung) == 2)
    assert rung == ["early", "late"]


async def test_a_timer_stopped_by_one_that_rings_with_it_stays_silent() -> None:
    rung: list[str] = []
    pair: list[Timer] = []

    def ring() -> None:
        rung.append("one of them")
        for timer in pair:
            timer.stop()

    pair += [call_within(_LONG, ring), call_within(_LONG, ring)]
    await until(lambda: rung)
    await asyncio.sleep(0.1)
    assert len(rung) == 1


async def test_one_that_fails_does_not_silence_the_others() -> None:
    loop = asyncio.get_running_loop()
    reported: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    rung: list[int] = []
    call_within(_LONG, lambda: 1 // 0)
    call_within(_LONG, lambda: rung.append(1))
    await asyncio.sleep(_LONG + 0.3)
    assert rung == [1]
    assert isinstance(reported[0]["exception"], ZeroDivisionError)


def test_loops_of_two_threads_have_their_own() -> None:
    rung: list[str] = []

    async def wait(name: str) -> None:
        for _ in range(5):
            call_within(_LONG, lambda: rung.append(name))
            await asyncio.sleep(0.01)
        await asyncio.sleep(_LONG + 0.3)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(wait(n))) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(rung) == ["a"] * 5 + ["b"] * 5


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


async def test_the_inner_of_two_limits_rings_for_itself_alone() -> None:
    with Limit(60.0) as outer, pytest.raises(TimeoutError), Limit(_SHORT):
        await asyncio.sleep(30)
    assert not outer.expired


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with Limit(_SHORT):
            try:
                await asyncio.sleep(30)
            finally:
                # Both: the limit rang, and somebody cancelled the task as well.
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
