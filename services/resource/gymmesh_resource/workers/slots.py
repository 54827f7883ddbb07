"""Waiting for one of a few places, which is no part of the time that a method may take.

    places = Places("sandboxes", 4)

    async with places.one():
        ...

Where many calls want the same few sandboxes or workers, each would else spend its time limit on
what others do: programs that sleep would end the verdicts of innocent answers in a time-out. So
the clock of the method that waits stands still. The wait has bounds of its own, and is refused
as a full queue (QUEUE_FULL, to be tried again) when it reaches one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import Limit

__all__ = ["CallTime", "Places", "in_time", "waiting_for_place"]

# Seconds before the caller gives up, in which it is told that the queue was what took so long.
_MARGIN_S: Final = 1.0


class CallTime:
    """The time that one call of a method has left, which stands still while it waits for a place.

    `deadline`: when its caller gives up, in monotonic seconds; None: not known.
    """

    __slots__ = ("_end", "_left", "_limit", "_waits", "deadline")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._limit: Limit | None = None
        self._waits = 0
        self._end = self._left = 0.0

    def begin(self, limit: Limit, seconds: float) -> None:
        """The call's limit was set, to so many seconds."""
        self._limit, self._end, self._left = limit, monotonic() + seconds, seconds
        if self._waits:
            limit.stop()

    def end(self) -> None:
        """The call is over; what still waits has no effect on its limit."""
        self._limit = None

    def pause(self) -> None:
        """Something of the call waits."""
        self._waits += 1
        if self._waits == 1 and self._limit is not None:
            self._left = max(self._end - monotonic(), 0.0)
            self._limit.stop()

    def resume(self) -> None:
        """It waits no longer."""
        self._waits -= 1
        limit = self._limit
        if not self._waits and limit is not None and not limit.expired:
            self._end = monotonic() + self._left
            limit.set(self._left)


#: That of the call that runs; set by the host.
in_time: ContextVar[CallTime | None] = ContextVar("in_time", default=None)


@contextmanager
def waiting_for_place() -> Iterator[None]:
    """Inside, the time of the method's call stands still. The wait must be bounded."""
    time = in_time.get()
    if time is None:
        yield
        return
    time.pause()
    try:
        yield
    finally:
        time.resume()


class Places:
    """At most `number` sandboxes, or the like, at a time; the others wait in line, at most `wait_s`
    seconds each.

    `name`: what there are so few of, for the error.
    """

    def __init__(self, name: str, number: int, *, wait_s: float = 600.0) -> None:
        self._name, self._number, self._wait_s = name, number, wait_s
        self._free = asyncio.Semaphore(number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place of one's own. Raises MeshError QUEUE_FULL."""
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    async def _wait(self) -> None:
        time = in_time.get()
        seconds = self._wait_s
        if time is not None and time.deadline is not None:
            seconds = min(seconds, max(time.deadline - monotonic() - _MARGIN_S, 0.0))
        began = monotonic()
        try:
            with waiting_for_place():
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
        except TimeoutError:
            raise MeshError(
                errors_pb2.ERROR_REASON_QUEUE_FULL,
                f"None of {self._number} {self._name} was free for {seconds:.1f} s.",
                metadata={"queue": self._name, "limit": str(self._number)},
                retry_after_s=1.0,
            ) from None
        finally:
            metrics.SANDBOX_WAIT_SECONDS.labels().observe(monotonic() - began)
