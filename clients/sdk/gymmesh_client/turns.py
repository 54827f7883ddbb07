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

    Args:
        most: pieces of work a turn.

    Attributes:
        waiting: what waits for its turn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._next_turn: asyncio.Handle | None = None
        self.waiting: deque[Callable[[], None]] = deque()

    def call(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call something now where there is a place left, else in its turn; it raises nothing."""
        if self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._next)
        if self._taken < self._most and not self.waiting:
            self._taken += 1
            work(*args)
        else:
            self.waiting.append(partial(work, *args))

    def _next(self) -> None:
        self._taken, self._next_turn = 0, None
        while self.waiting and self._taken < self._most:
            self._taken += 1
            self.waiting.popleft()()
        # Once more where there was any: more may be called in the rest of this turn.
        if self._taken:
            self._next_turn = asyncio.get_running_loop().call_soon(self._next)
