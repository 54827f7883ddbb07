"""Spreads work over the turns of the event loop, so that a burst of it does not hold up others."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """At most so many pieces of work in one turn of the loop; the others wait, in order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._next_turn: asyncio.Handle | None = None

    async def take(self) -> None:
        """Wait for a place in this turn of the loop, or in a later one. Not to be cancelled."""
        loop = asyncio.get_running_loop()
        if self._next_turn is None:
            self._next_turn = loop.call_soon(self._begin_turn)
        if self._taken < self._most and not self._waiting:
            self._taken += 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    def _begin_turn(self) -> None:
        self._taken, self._next_turn = 0, None
        while self._waiting and self._taken < self._most:
            self._taken += 1
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
        if self._taken:  # more may come in the rest of this turn
            self._next_turn = asyncio.get_running_loop().call_soon(self._begin_turn)
