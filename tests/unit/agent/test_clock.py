from __future__ import annotations

import asyncio

from gymmesh_agent.clock import RolloutClock


async def test_the_clock_rings_when_the_attempts_time_is_up() -> None:
    rang = asyncio.Event()
    RolloutClock(None, 0.01).start(rang.set)
    async with asyncio.timeout(30.0):
        await rang.wait()


async def test_a_stopped_clock_does_not_ring() -> None:
    rang: list[str] = []
    stopped, other = RolloutClock(None, 0.01), RolloutClock(None, 0.02)
    stopped.start(lambda: rang.append("stopped"))
    stopped.stop()
    stopped.stop()
    over = asyncio.Event()
    other.start(over.set)
    async with asyncio.timeout(30.0):
        await over.wait()
    assert not rang


def test_one_that_was_not_started_can_be_stopped() -> None:
    RolloutClock(None, 1.0).stop()
