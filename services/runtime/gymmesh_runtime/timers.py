"""Timers that are set for nearly every call and hardly ever ring.

A call, a rollout, a hop: each has its time limit, and nearly all end long before it. The
loop's own timers are made for those that ring: each goes through a heap, and a cancelled one
stays there until its time. These wait in buckets of a sixteenth of a second, one timer of the
loop for all, and leave without a trace. Short delays, where a sixteenth of a second would show,
go to the loop.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable
from heapq import heappop, heappush
from types import TracebackType
from typing import Any, Final

_PER_SECOND: Final = 16
# Below this a bucket's width would be more than a twentieth of the delay.
_EXACT_S: Final = 1.25


def _nothing() -> None:
    """What a stopped timer would call."""


class Timer:
    """Calls `ring` once, unless it is stopped before."""

    __slots__ = ("_bucket", "_exact", "ring")

    def __init__(self, ring: Callable[[], object]) -> None:
        self.ring = ring
        self._bucket: set[Timer] | None = None
        self._exact: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """It will not ring; harmless when it has."""
        # What rings mostly holds the timer in turn: such a circle would wait for the collector.
        self.ring = _nothing
        if self._bucket is not None:
            self._bucket.discard(self)
        elif self._exact is not None:
            self._exact.cancel()

    def wait_in(self, bucket: set[Timer]) -> None:
        """Ring together with the bucket's others."""
        bucket.add(self)
        self._bucket = bucket

    def wait_alone(self, handle: asyncio.TimerHandle) -> None:
        """Ring with a timer of the loop."""
        self._exact = handle


class _Wheel:
    """The buckets of one event loop, by the sixteenth of a second at whose end they ring."""

    __slots__ = ("_buckets", "_handle", "_loop", "_next", "_ticks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Timer]] = {}
        self._ticks: list[int] = []
        self._next = 0  # the tick for which the loop's timer is set; 0: none
        self._handle: asyncio.TimerHandle | None = None

    def add(self, delay: float, timer: Timer) -> None:
        tick = int((self._loop.time() + delay) * _PER_SECOND) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heappush(self._ticks, tick)
            if not self._next or tick < self._next:
                self._set(tick)
        timer.wait_in(bucket)

    def _set(self, tick: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = tick
        self._handle = self._loop.call_at(tick / _PER_SECOND, self._ring)

    def _ring(self) -> None:
        now = self._loop.time() * _PER_SECOND
        while self._ticks and self._ticks[0] <= now:
            bucket = self._buckets.pop(heappop(self._ticks))
            for timer in list(bucket):
                # One that an earlier one stopped is gone from the bucket.
                if timer in bucket:
                    bucket.discard(timer)
                    self._ring_one(timer)
        self._next, self._handle = 0, None
        # Buckets that were left by everyone are not worth a call of their own.
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heappop(self._ticks)]
        if self._ticks:
            self._set(self._ticks[0])

    def _ring_one(self, timer: Timer) -> None:
        try:
            timer.ring()
        except Exception as error:  # as the loop does it: the others ring all the same
            context = {"message": "a timer's callback failed", "exception": error}
            self._loop.call_exception_handler(context)


_wheel: tuple[asyncio.AbstractEventLoop, _Wheel] | None = None


def call_within(delay: float, ring: Callable[[], object]) -> Timer:
    """Calls `ring` in `delay` seconds, at most a sixteenth of a second later.

    It belongs to the running loop. Up to 1.25 s the delay is kept as exactly as the loop's own.
    """
    global _wheel
    timer = Timer(ring)
    loop = asyncio.get_running_loop()
    if delay < _EXACT_S:
        timer.wait_alone(loop.call_later(delay, ring))
        return timer
    wheel = _wheel
    if wheel is None or wheel[0] is not loop:
        wheel = _wheel = (loop, _Wheel(loop))
    wheel[1].add(delay, timer)
    return timer


class Limit:
    """A block's time limit, as `asyncio.timeout`, for a fraction of its cost.

        with Limit(30.0):
            await something()

    Raises TimeoutError out of the block when the time is up and the block gives way to the
    cancellation. Must be entered and left by one task, with no yield of a generator between.
    """

    __slots__ = ("_before", "_delay", "_task", "_timer", "expired")

    def __init__(self, delay: float) -> None:
        self._delay = delay
        #: Whether the time was up.
        self.expired = False

    def __enter__(self) -> Limit:
        task: asyncio.Task[Any] | None = asyncio.current_task()
        if task is None:
            raise RuntimeError("a limit needs a task to cancel")
        self._task = task
        self._before = task.cancelling()
        self._timer = call_within(self._delay, self._ring)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.expired:
            self._timer.stop()
        elif self._task.uncancel() <= self._before and kind is CancelledError:
            raise TimeoutError from error

    def _ring(self) -> None:
        self.expired = True
        self._task.cancel()
