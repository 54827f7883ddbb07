"""An event loop in a thread of its own, for trainers that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines from synchronous code."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gymmesh", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self, work: Awaitable[T]) -> T:
        """Wait for a coroutine; its result. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(_awaited(work), self._loop).result()

    def end(self) -> None:
        """End the loop and the thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _awaited(work: Awaitable[T]) -> T:
    return await work  # `anext` gives an awaitable that is no coroutine
