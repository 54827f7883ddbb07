"""Limits the concurrent and the waiting calls: first come, first served.

Every call passes it, so a free place costs two comparisons and no task, timer or lock:

    if not limiter.enter():
        await limiter.wait(timeout)
    try:
        …
    finally:
        limiter.leave()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from gymmesh_model.errors import timed_out
from gymmesh_runtime.errors import queue_full


class ConcurrencyLimiter:
    """Places for calls; `queue` more may wait for one. For the tasks of one event loop.

    name: appears in errors only. limit: how many places there are, see `resize`; infinity is no
    limit, as for `queue`. running: how many are taken; more than `limit` for a while after that was
    lowered.
    """

    __slots__ = ("_name", "_queue", "_waiters", "limit", "running")

    def __init__(self, name: str, running: float, queue: float) -> None:
        self._name = name
        self._queue = queue
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.limit = running
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def resize(self, limit: float) -> None:
        """Sets the number of places. Places that are taken stay so until they are left."""
        self.limit = limit
        self._hand_out()

    def enter(self) -> bool:
        """Takes a place if one is free and no call waits for it; False without one."""
        if self.running >= self.limit or self._waiters:
            return False
        self.running += 1
        return True

    async def again(self, timeout: float) -> None:
        """Before a retry: gives the call's place back while too many are taken.

        The call then waits before all others, up to `timeout` seconds. Raises MeshError
        MODEL_TIMEOUT. The call has a place afterwards, even if it raises.
        """
        if self.running <= self.limit:
            return
        self.leave()
        try:
            await self.wait(timeout, first=True)
        except BaseException:
            self.running += 1
            raise

    async def wait(self, timeout: float, *, first: bool = False) -> None:
        """Takes a place, after waiting up to `timeout` seconds for it.

        first: whether before all others, and however many there are. Raises MeshError: QUEUE_FULL,
        at once, and MODEL_TIMEOUT. No place is held then, nor when the wait is cancelled.
        """
        if len(self._waiters) >= self._queue and not first:
            raise queue_full(
                f"model '{self._name}' is busy, and the maximum number of calls already waits "
                f"(max_queue: {self._queue}); retry later",
                self._name,
                int(self._queue),
            )
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        if first:
            self._waiters.appendleft(place)
        else:
            self._waiters.append(place)
        self._hand_out()
        timer = loop.call_later(timeout, self._give_up, place, timeout)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                # It was given a place in the same moment.
                self.leave()
            else:
                self._forget(place)
            raise
        finally:
            timer.cancel()

    def leave(self) -> None:
        """Gives a place back; it goes to the call that has waited longest."""
        self.running -= 1
        if self._waiters:
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiters and self.running < self.limit:
            place = self._waiters.popleft()
            if not place.done():
                self.running += 1
                place.set_result(None)

    def _give_up(self, place: asyncio.Future[None], timeout: float) -> None:
        if not place.done():
            self._forget(place)
            place.set_exception(timed_out(self._name, timeout, "no place was free"))

    def _forget(self, place: asyncio.Future[None]) -> None:
        with contextlib.suppress(ValueError):
            self._waiters.remove(place)
