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
from time import monotonic
from types import TracebackType
from typing import Any, Final

_WIDTH_S: Final = 0.0625
# Below this a bucket's width would be more than a twentieth of the delay.
_EXACT_S: Final = 1.25
# Loops that count whole milliseconds would else ring before the tick, and be asked again and again.
_AFTER_TICK_S: Final = 0.001


#: Timers can't be set for ever; a year will do.
MAX_TIMEOUT_S: Final = 365 * 86_400.0


class Timer:
    """Rings once, unless it is stopped before. What it does then, a subclass says in `ring`."""

    __slots__ = ("_waits",)

    #: What it waits in, by itself or with others.
    _waits: set[Timer] | _Alone

    def ring(self) -> None:
        """Called by the loop."""
        raise NotImplementedError

    def set(self, delay: float, wheel: Wheel | None = None) -> None:
        """Rings in `delay` seconds, at most a sixteenth of a second later.

        It belongs to the running loop, whose wheel may be given. Up to 1.25 s the delay is kept as
        exactly as the loop's own.
        """
        if wheel is None:
            wheel = running_wheel()
        if delay < _EXACT_S:
            self._waits = _Alone(wheel.loop.call_later(delay, self.ring))
            return
        # Not a method of the wheel's: this is done several times for every rollout. And a float,
        # though whole: to make an integer of it is dearer than all of the sum.
        tick = (monotonic() + delay) // _WIDTH_S + 1.0
        bucket = wheel.buckets.get(tick)
        if bucket is None:
            bucket = wheel.open(tick)
        bucket.add(self)
        self._waits = bucket

    def stop(self) -> None:
        """It will not ring; harmless when it has."""
        self._waits.discard(self)


class _Alone:
    """The loop's own timer, to be left like a bucket."""

    __slots__ = ("_handle",)

    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self._handle = handle

    def discard(self, timer: Timer) -> None:
        """Cancels it, which also cuts the circle of handle and timer."""
        self._handle.cancel()


class _Call(Timer):
    """Calls a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    def ring(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()

    def stop(self) -> None:
        self._waits.discard(self)
        self._function = None


class Wheel:
    """The buckets of one event loop, by the sixteenth of a second at whose end they ring."""

    __slots__ = ("_handle", "_next", "_ticks", "buckets", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.buckets: dict[float, set[Timer]] = {}
        self._ticks: list[float] = []
        self._next = 0.0  # the tick for which the loop's timer is set; 0: none
        self._handle: asyncio.TimerHandle | None = None

    def open(self, tick: float) -> set[Timer]:
        """A new bucket; ticks are sixteenths of a second on the monotonic clock.

        Raises ValueError for the tick of an infinite delay, which no bucket would ever be found by.
        """
        if tick != tick:
            raise ValueError("a timer's delay must be finite")
        bucket = self.buckets[tick] = set()
        heappush(self._ticks, tick)
        if not self._next or tick < self._next:
            self._set(tick)
        return bucket

    def _set(self, tick: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = tick
        delay = tick * _WIDTH_S + _AFTER_TICK_S - monotonic()
        self._handle = self.loop.call_later(delay, self._ring)

    def _ring(self) -> None:
        now = monotonic() / _WIDTH_S
        while self._ticks and self._ticks[0] <= now:
            bucket = self.buckets.pop(heappop(self._ticks))
            for timer in list(bucket):
                # One that an earlier one stopped is gone from the bucket.
                if timer in bucket:
                    bucket.discard(timer)
                    self._ring_one(timer)
        self._next, self._handle = 0.0, None
        # Buckets that were left by everyone are not worth a call of their own.
        while self._ticks and not self.buckets[self._ticks[0]]:
            del self.buckets[heappop(self._ticks)]
        if self._ticks:
            self._set(self._ticks[0])

    def _ring_one(self, timer: Timer) -> None:
        try:
            timer.ring()
        except Exception as error:  # as the loop does it: the others ring all the same
            context = {"message": "a timer's callback failed", "exception": error}
            self.loop.call_exception_handler(context)


_wheel: Wheel | None = None


def running_wheel() -> Wheel:
    """The wheel of the running loop. Who sets many timers keeps it: the loop is dear to ask for."""
    global _wheel
    loop = asyncio.get_running_loop()
    wheel = _wheel
    if wheel is None or wheel.loop is not loop:
        wheel = _wheel = Wheel(loop)
    return wheel


def call_within(delay: float, function: Callable[[], object]) -> Timer:
    """Calls `function` in `delay` seconds, unless the timer given is stopped; see `Timer.set`."""
    timer = _Call(function)
    timer.set(delay)
    return timer


class Limit(Timer):
    """A block's time limit, as `asyncio.timeout`, for a fraction of its cost.

        with Limit(30.0):
            await something()

    Raises TimeoutError out of the block when the time is up and the block gives way to the
    cancellation. Its time begins when it is made. Must be made, entered and left by one task, with
    no yield of a generator between.
    """

    __slots__ = ("_before", "_task", "expired")

    def __init__(self, delay: float, wheel: Wheel | None = None) -> None:
        if wheel is None:
            wheel = running_wheel()
        #: Whether the time was up.
        self.expired = False
        task: asyncio.Task[Any] | None = asyncio.current_task(wheel.loop)
        if task is None:
            raise RuntimeError("a limit needs a task to cancel")
        self._task = task
        self._before = task.cancelling()
        self.set(delay, wheel)

    @property
    def alone(self) -> bool:
        """Whether the time was up, and nobody else cancelled the task since the limit was made."""
        return self.expired and self._task.cancelling() <= self._before + 1

    def leave(self) -> None:
        """Ends it, once; for those who do what the `with` does by themselves."""
        if self.expired:
            self._task.uncancel()
        else:
            self._waits.discard(self)

    def __enter__(self) -> Limit:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        overdue = kind is CancelledError and self.alone
        self.leave()
        if overdue:
            raise TimeoutError from error

    def ring(self) -> None:
        """The time is up."""
        self.expired = True
        self._task.cancel()
