"""Hands answers to who waits for them, so many in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Each wakes a task, which takes a step of a rollout: a tenth of a millisecond, or two.
MOST: Final = 128


class Turnstile(Generic[T]):
    """Results for futures; beyond `most` in one turn of the loop, they wait for the next ones.

    When thousands of answers come at once, all who wait for them would wake in one turn, and the
    loop would see to no timer and no other connection until each has taken its step.
    """

    __slots__ = ("_line", "_loop", "_most", "_room", "_turning")

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST) -> None:
        self._loop = loop
        self._most = self._room = most
        self._line: deque[tuple[asyncio.Future[T], T]] = deque()
        self._turning = False

    def give(self, waiter: asyncio.Future[T], result: T) -> None:
        """The waiter's result, now or soon; nothing for one that does not wait any more."""
        if waiter.done():
            return
        if self._room and not self._line:
            self._room -= 1
            waiter.set_result(result)
        else:
            self._line.append((waiter, result))
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """The next turn of the loop begins."""
        used, self._room = self._room < self._most, self._most
        while self._line and self._room:
            waiter, result = self._line.popleft()
            if not waiter.done():
                self._room -= 1
                waiter.set_result(result)
        # Once more where there was any, since more may come in the rest of this turn.
        if used or self._line or self._room < self._most:
            self._loop.call_soon(self._turn)
        else:
            self._turning = False
