"""Spreads work over the turns of the event loop, so that a burst of it does not hold up others."""

from __future__ import annotations

import asyncio


class Turns:
    """At most so many pieces of work in one turn of the loop; the others wait, in order.

    Args:
        most: pieces of work a turn.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    async def take(self) -> None:
        """Wait for a place in this turn of the loop, or in a later one."""
        await self._places.acquire()
        asyncio.get_running_loop().call_soon(self._places.release)
