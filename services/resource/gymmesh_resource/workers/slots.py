"""A bounded number of sandboxes, or the like, at a time.

The wait for a slot does not count against the time limit of the call that waits. It has bounds of
its own, and is refused as a full queue (QUEUE_FULL) at the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from gymmesh_runtime import metrics
from gymmesh_runtime.errors import queue_full

from .call_timer import limit_paused, running_call

# Seconds before the caller gives up, so that it still gets the error that names the queue.
_MARGIN_S: Final = 1.0


class Slots:
    """At most `number` at a time; the others wait in line, at most `wait_s` seconds each.

    `name`: what there is a limited number of, for the error.
    """

    def __init__(self, name: str, number: int, *, wait_s: float = 600.0) -> None:
        self._name, self._number, self._wait_s = name, number, wait_s
        self._free = asyncio.Semaphore(number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot inside of the block. Raises MeshError QUEUE_FULL."""
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    async def _wait(self) -> None:
        timer = running_call.get()
        seconds = self._wait_s
        if timer is not None and timer.deadline is not None:
            seconds = min(seconds, max(timer.deadline - monotonic() - _MARGIN_S, 0.0))
        began = monotonic()
        try:
            with limit_paused():
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
        except TimeoutError:
            raise queue_full(
                f"None of {self._number} {self._name} was free for {seconds:.1f} s.",
                self._name,
                self._number,
            ) from None
        finally:
            metrics.SANDBOX_WAIT_SECONDS.labels().observe(monotonic() - began)
