"""A bounded number of sandboxes, or the like, at a time.

The wait for a slot does not count against the time limit of the call that waits. It has bounds of
its own, and is refused as a full queue (QUEUE_FULL) at the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from gymmesh_resource.workers import metrics
from gymmesh_runtime.errors import queue_full
from gymmesh_runtime.timers import caller_waits_s, limit_paused

# Seconds before the caller gives up, so that it still gets the error that names the queue.
_MARGIN_S: Final = 1.0


class Slots:
    """At most `number` at a time; the others wait in line, at most `wait_s` seconds each.

    One may have all of them, to be alone.

    `name`: what there is a limited number of, for the error. `of_sandboxes`: whether their waits
    are observed as those for sandboxes.
    """

    def __init__(
        self, name: str, number: int, *, wait_s: float = 600.0, of_sandboxes: bool = True
    ) -> None:
        self._name, self._number, self._wait_s = name, number, wait_s
        self._of_sandboxes = of_sandboxes
        self._free = asyncio.Semaphore(number)
        # Two that gather all slots would wait for each other.
        self._gathering = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot inside of the block. Raises MeshError QUEUE_FULL."""
        async with self._held(1):
            yield

    @asynccontextmanager
    async def all(self) -> AsyncIterator[None]:
        """Hold all slots inside of the block, so that nothing else runs. Raises as `one`."""
        async with self._gathering_alone(), self._held(self._number):
            yield

    @asynccontextmanager
    async def _held(self, number: int) -> AsyncIterator[None]:
        held = 0
        try:
            while held < number:
                if self._free.locked():
                    await self._wait(self._free.acquire())
                else:
                    await self._free.acquire()
                held += 1
            yield
        finally:
            for _ in range(held):
                self._free.release()

    @asynccontextmanager
    async def _gathering_alone(self) -> AsyncIterator[None]:
        await self._wait(self._gathering.acquire())
        try:
            yield
        finally:
            self._gathering.release()

    async def _wait(self, acquired: Awaitable[object]) -> None:
        seconds = min(self._wait_s, max(caller_waits_s() - _MARGIN_S, 0.0))
        began = monotonic()
        try:
            with limit_paused():
                async with asyncio.timeout(seconds):
                    await acquired
        except TimeoutError:
            raise queue_full(
                f"None of {self._number} {self._name} was free for {seconds:.1f} s.",
                self._name,
                self._number,
            ) from None
        finally:
            if self._of_sandboxes:
                metrics.SANDBOX_WAIT_SECONDS.labels().observe(monotonic() - began)
