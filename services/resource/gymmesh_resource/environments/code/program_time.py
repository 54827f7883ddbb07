"""The time limits of a program: processor time, and clock time without waits for a processor.

A program exceeds its limit if it has used that much processor time, or if that much clock time has
passed in which it did not wait for a processor. Waiting counts if the program causes it, by several
ready threads at a time or by a lower priority. A sleeping program does not wait for a processor.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gymmesh_resource.sandbox import ProgramThread, Running


class OutOfTime(Exception):
    """A program exceeded its limit; the text is the limit."""


class Starved(Exception):
    """The machine was too busy to give a program its time. The program is not to blame."""


class ProgramTime:
    """The time that programs which work by turns have for a suite.

    Args:
        programs: of which one at a time works.
        suite_s: seconds for all of it.
        clock_s: seconds of the clock, after which a machine that gave too few of those is given up.
        last_s: the same where a program will have had its time by then, at its present pace.
    """

    def __init__(
        self,
        programs: Sequence[Running],
        suite_s: float,
        clock_s: float = math.inf,
        last_s: float = 0.0,
    ) -> None:
        self._programs = programs
        self._suite_s = suite_s
        self._left_s = suite_s
        self._waits = Waits()
        began = asyncio.get_running_loop().time()
        self._given_up, self._last = began + clock_s, began + last_s

    @asynccontextmanager
    async def limit(self, seconds: float = math.inf) -> AsyncIterator[None]:
        """Limits a block to this many seconds, and to the seconds left for the suite.

        Raises:
            OutOfTime: the block took longer.
            Starved: a busy machine gave the block too little processor time.
        """
        loop, waits = asyncio.get_running_loop(), self._waits
        may_take = min(seconds, self._left_s)
        began, waited_s = loop.time(), waits.waited_s
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
            in_all = f"{self._suite_s:g} s for all tests"
            raise OutOfTime(f"{seconds:g} s" if may_take == seconds else in_all) from None
        finally:
            self._left_s -= loop.time() - began - (waits.waited_s - waited_s)

    async def _watch(self, clock: asyncio.Timeout, may_take: float) -> None:
        """End the block when its programs have used their time, or will not get it."""
        loop, waits = asyncio.get_running_loop(), self._waits
        began = now = loop.time()
        end = began + may_take - waits.waited_s
        ran_s = None
        try:
            while True:
                # At random, so that no program can be ready for the moment. Most tests end before.
                pause = may_take * random.uniform(0.05, 0.15)
                due = min(end + waits.waited_s, max(self._given_up, now + pause))
                await asyncio.sleep(max(min(pause, due - now), 0.0))
                now = loop.time()
                before_s = waits.ran_s
                waits.see(await asyncio.to_thread(self._threads))
                if ran_s is None:
                    # What ran before the block is not told apart from it by the first look.
                    ran_s = waits.ran_s - min(waits.ran_s - before_s, now - began)
                # What it has had of its time, by the clock or of a processor.
                had_s = max(may_take - (end + waits.waited_s - now), waits.ran_s - ran_s)
                if had_s >= may_take:
                    break
                if now >= self._given_up and not self._is_in_time(began, now, had_s / may_take):
                    raise Starved(f"the program waited {waits.waited_s:.1f} s for a processor")
        except Exception:
            clock.reschedule(now)
            raise
        clock.reschedule(now)

    def _is_in_time(self, began: float, now: float, part: float) -> bool:
        """Whether a block that has had this part of its time will soon have had all of it."""
        return part > 0 and began + (now - began) / part <= self._last

    def _threads(self) -> list[ProgramThread]:
        return [thread for program in self._programs for thread in program.threads()]


class Waits:
    """How long programs waited for a processor because of others, and used one. Pure.

    Attributes:
        ran_s: seconds of processors so far, of all threads that were seen.
        waited_s: seconds waited so far, from their beginnings on.
    """

    def __init__(self) -> None:
        self.ran_s = 0.0
        self.waited_s = 0.0
        self._before: dict[int, ProgramThread] = {}

    def see(self, threads: Sequence[ProgramThread]) -> None:
        """Take the threads as they are now into account."""
        before, self._before = self._before, {one.number: one for one in threads}
        waits = [0.0]
        for one in threads:
            last = before.get(one.number)
            self.ran_s += one.ran_s - (last.ran_s if last else 0.0)
            waits.append(one.waited_s - (last.waited_s if last else 0.0))
        # Several that are ready wait for each other.
        if sum(one.ready for one in threads) <= 1 and not any(one.yields for one in threads):
            self.waited_s += max(waits)
