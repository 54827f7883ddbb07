"""At most so many calls at a time, at most so many waiting: first come, first served.

On the path of every call, so a free place costs two comparisons and no task, timer or lock:

    if not limiter.enter():
        await limiter.wait(timeout)
    try:
        …
    finally:
        limiter.leave()
"""

from __future__ import annotations

import asyncio
from collections import deque

from gymmesh_model.errors import timed_out
from gymmesh_runtime.errors import MeshError, queue_full


class ConcurrencyLimiter:
    """Places for `running` calls, a number that may change; `queue` more may wait for one.

    `name` appears in errors only. For the tasks of one event loop.
    """

    __slots__ = ("_limit", "_name", "_queue", "_running", "_waiters")

    def __init__(self, name: str, running: int, queue: int) -> None:
        self._name = name
        self._limit = running
        self._queue = queue
        self._running = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many places there are."""
        return self._limit

    @property
    def running(self) -> int:
        """How many places are taken; more than `limit` for a while after that was lowered."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        return len(self._waiters)

    def resize(self, limit: int) -> None:
        """Sets the number of places. Places that are taken stay so until they are left."""
        self._limit = limit
        self._hand_out()

    def enter(self) -> bool:
        """Takes a place if one is free and no call waits for it; False without one."""
        if self._running >= self._limit or self._waiters:
            return False
        self._running += 1
        return True

    async def wait(self, timeout: float) -> None:
        """Takes a place, after waiting up to `timeout` seconds for it.

        Raises MeshError: QUEUE_FULL, at once, and MODEL_TIMEOUT. No place is held then, nor
        when the wait is cancelled.
        """
        if len(self._waiters) >= self._queue:
            raise self._full()
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
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
        self._running -= 1
        if self._waiters:
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiters and self._running < self._limit:
            place = self._waiters.popleft()
            if not place.done():
                self._running += 1
                place.set_result(None)

    def _give_up(self, place: asyncio.Future[None], timeout: float) -> None:
        if not place.done():
            self._forget(place)
            place.set_exception(timed_out(self._name, timeout, "no place was free"))

    def _forget(self, place: asyncio.Future[None]) -> None:
        try:
            self._waiters.remove(place)
        except ValueError:
            return

    def _full(self) -> MeshError:
        return queue_full(
            f"model '{self._name}' is busy and {self._queue} calls are waiting already; "
            "call again later",
            self._name,
            self._queue,
        )
