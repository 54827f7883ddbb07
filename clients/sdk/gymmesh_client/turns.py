"""Spreads work over the turns of the event loop, so that a burst of it does not hold up others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")


class Turns:
    """At most so many pieces of work start in one turn of the loop; the others wait, in order.

        turns.call(work, *args)

    or, for what is to be waited for,

        if turns.full():
            await turns.mine()
        work()

    Args:
        most: pieces of work a turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._next_turn: asyncio.Handle | None = None
        self._waiting: deque[asyncio.Future[None] | Callable[[], None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def full(self) -> bool:
        """Whether this turn has no place left; otherwise one is taken."""
        if self._taken >= self._most or self._waiting:
            return True
        self._taken += 1
        self._go_on()
        return False

    def call(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call something now where there is a place left, else in its turn; it raises nothing."""
        if self.full():
            self._waiting.append(partial(work, *args))
            self._go_on()
        else:
            work(*args)

    async def mine(self) -> None:
        """Wait for a place."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._go_on()
        await place

    def _go_on(self) -> None:
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._taken, self._next_turn = 0, None
        while self._waiting and self._taken < self._most:
            waiting = self._waiting.popleft()
            if not isinstance(waiting, asyncio.Future):
                waiting()
            elif not waiting.done():
                waiting.set_result(None)
            else:
                continue
            self._taken += 1
        if self._taken:
            self._go_on()
