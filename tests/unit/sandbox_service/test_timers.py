"""The service's clock and its timers."""

from __future__ import annotations

import asyncio

from gymmesh_sandbox.timers import Clock, Timers
from tests.support.sandboxes import HandClock


def test_a_moment_is_the_same_time_each_time_it_is_asked_for() -> None:
    """The system's clocks are read one after the other, a little apart."""
    jitter = iter([0, 700, 300, 900, 100, 500, 200, 800] * 10)
    clock = Clock(lambda: 5.0, lambda: 10**18 + next(jitter))
    assert len({clock.unix_of(7.5) for _ in range(20)}) == 1


def test_a_system_clock_that_is_set_is_followed() -> None:
    unix = [10**18]
    clock = Clock(lambda: 5.0, lambda: unix[0])
    before = clock.unix_of(7.5)
    unix[0] += 3600 * 10**9
    assert clock.unix_of(7.5) == before + 3600 * 10**9


def test_timers_are_called_in_order_and_not_once_cancelled() -> None:
    time = HandClock()
    timers = Timers(time.clock)
    called: list[str] = []
    timers.after(3, lambda: called.append("c"))
    timers.after(1, lambda: called.append("a"))
    timers.after(2, lambda: called.append("b")).cancel()
    time.seconds += 5
    timers.run_due()
    timers.run_due()
    assert called == ["a", "c"]


async def test_one_that_is_due_before_the_one_waited_for_is_not_missed() -> None:
    timers = Timers(Clock())
    done = asyncio.Event()
    running = asyncio.create_task(timers.run())
    timers.after(3600, lambda: None)
    await asyncio.sleep(0)
    timers.after(0.01, done.set)
    async with asyncio.timeout(60):
        await done.wait()
    running.cancel()
