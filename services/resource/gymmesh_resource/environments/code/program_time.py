"""The time that a program has: seconds of the clock, less those that a busy machine took from it.

A program that was ready to run but had no processor is not slow. What it waited is given back,
unless it made itself wait: with several threads ready at a time, or with a lower priority. A
sleeping program waits for no processor.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gymmesh_resource.sandbox import ProgramThread, Running


class OutOfTime(Exception):
    """A program took longer than it may; the text says how long that is."""


class ProgramTime:
    """The time that programs which work by turns have for a suite.

    Args:
        programs: of which one at a time works.
        suite_s: seconds for all of it.
    """

    def __init__(self, programs: Sequence[Running], suite_s: float) -> None:
        self._programs = programs
        self._suite_s = suite_s
        self._left_s = suite_s
        self._waits = Waits()

    @asynccontextmanager
    async def limit(self, seconds: float = math.inf) -> AsyncIterator[None]:
        """A block that may take so many seconds, and no more than are left for the suite.

        Raises:
            OutOfTime: it took longer.
        """
        may_take = min(seconds, self._left_s)
        began, waited_s = asyncio.get_running_loop().time(), self._waits.waited_s
        try:
            async with asyncio.timeout(None) as clock:
                watch = asyncio.create_task(self._watch(clock, may_take))
                try:
                    yield
                finally:
                    watch.cancel()
                    await asyncio.wait((watch,))
                    if not watch.cancelled():
                        watch.result()  # raises what kept it from looking
        except TimeoutError:
            in_all = f"{self._suite_s:g} s in all"
            raise OutOfTime(f"{seconds:g} s" if may_take == seconds else in_all) from None
        finally:
            took_s = asyncio.get_running_loop().time() - began
            self._left_s -= took_s - (self._waits.waited_s - waited_s)

    async def _watch(self, clock: asyncio.Timeout, may_take: float) -> None:
        """End the block when it has taken its time, that aside which its programs waited."""
        loop, waits = asyncio.get_running_loop(), self._waits
        end = loop.time() + may_take - waits.waited_s
        now = loop.time()
        try:
            while now < end + waits.waited_s:
                # At random, so that no program can be ready for the moment. Most tests end before.
                pause = may_take * random.uniform(0.05, 0.15)
                await asyncio.sleep(min(pause, end + waits.waited_s - now))
                now = loop.time()
                waits.see(await asyncio.to_thread(self._threads))
        except Exception:
            clock.reschedule(now)
            raise
        clock.reschedule(now)

    def _threads(self) -> list[ProgramThread]:
        return [thread for program in self._programs for thread in program.threads()]


class Waits:
    """How long programs waited for a processor because of others. Pure.

    Attributes:
        waited_s: seconds so far, from their beginnings on.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._before: dict[int, float] = {}

    def see(self, threads: Sequence[ProgramThread]) -> None:
        """Take the threads as they are now into account."""
        before, self._before = self._before, {one.number: one.waited_s for one in threads}
        # Several that are ready wait for each other.
        if sum(one.ready for one in threads) > 1 or any(one.yields for one in threads):
            return
        waits = (one.waited_s - before.get(one.number, 0.0) for one in threads)
        self.waited_s += max(waits, default=0.0)
