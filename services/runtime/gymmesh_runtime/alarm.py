"""One deadline over many waits.

``asyncio.timeout`` must be entered and left around each wait of an async
generator, since it may not stay open across a yield. An alarm is set once and
costs next to nothing per wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from gymmesh_runtime.timers import call_within

T = TypeVar("T")


class Alarm:
    """Rings once, ``delay`` seconds from now, as exactly as timers.py does it.

    Then the wait under way and all later ones fail.
    """

    __slots__ = ("_timer", "_waiting", "rang")

    def __init__(self, delay: float) -> None:
        self.rang = False
        self._waiting: asyncio.Task[Any] | None = None
        self._timer = call_within(delay, self._ring)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Waits for one thing. Raises TimeoutError when the alarm rings before or meanwhile."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an alarm needs a task to wake")
        if self.rang:
            # Runs the awaitable's first step under a cancellation, as a wait that rang would.
            task.cancel()
        before = task.cancelling() - self.rang
        self._waiting = task
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self.rang and task.cancelling() <= before + 1:
                raise TimeoutError from None
            raise  # somebody else cancelled the task, too
        finally:
            self._waiting = None
            if self.rang:
                task.uncancel()

    def stop(self) -> None:
        """Stops it from ringing."""
        self._timer.stop()

    def _ring(self) -> None:
        self.rang = True
        if self._waiting is not None:
            self._waiting.cancel()
