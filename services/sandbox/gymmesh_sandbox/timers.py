"""The service's clock, and functions that are called at given times."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Final

_NANOSECONDS: Final = 1_000_000_000
# The two clocks are read one after the other, and drift apart by less than this.
_SET_NS: Final = _NANOSECONDS // 2


class Clock:
    """Provides the service's time.

    Args:
        now: seconds that never go back.
        unix_ns: nanoseconds since 1970-01-01 UTC.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.now = now
        self.unix_ns = unix_ns
        self._difference = self._measured()

    def unix_of(self, moment: float) -> int:
        """A time of `now` in nanoseconds since 1970-01-01 UTC.

        The same time gives the same number, unless the system's clock was set.
        """
        if abs(self._measured() - self._difference) > _SET_NS:
            self._difference = self._measured()
        return max(0, self._difference + round(moment * _NANOSECONDS))

    def _measured(self) -> int:
        return self.unix_ns() - round(self.now() * _NANOSECONDS)


class Timer:
    """A function to call at some time, unless it is cancelled."""

    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        """Cancels the call; does nothing if it was already made."""
        self.cancelled = True


class Timers:
    """All timers of a service, in one heap.

    Tests advance the clock and call `run_due`; the service runs `run`.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._earlier = asyncio.Event()

    def at(self, moment: float, call: Callable[[], None]) -> Timer:
        """Calls `call`, which must not raise, when the clock has reached a time."""
        timer = Timer(call)
        if not self._heap or moment < self._heap[0][0]:
            self._earlier.set()
        heapq.heappush(self._heap, (moment, next(self._numbers), timer))
        return timer

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Calls `call` after some seconds."""
        return self.at(self.clock.now() + seconds, call)

    def run_due(self) -> None:
        """Calls all due functions, the earliest first."""
        now = self.clock.now()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].cancelled):
            timer = heapq.heappop(self._heap)[2]
            if not timer.cancelled:
                timer.cancelled = True
                timer.call()

    async def run(self) -> None:
        """Calls each function in time, until cancelled."""
        while True:
            self._earlier.clear()
            self.run_due()
            wait = self._heap[0][0] - self.clock.now() if self._heap else None
            try:
                async with asyncio.timeout(wait):
                    await self._earlier.wait()
            except TimeoutError:
                continue
