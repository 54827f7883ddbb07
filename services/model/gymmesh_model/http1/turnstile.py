"""Hands answers to who waits for them: several in one turn of the event loop, like beside like."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

# Each wakes a task, which takes a step of a rollout: a tenth of a millisecond, or two. When
# thousands of answers come at once, all who wait for them would wake in one turn, and the loop
# would see to no timer and no other connection until each has taken its step.
MOST: Final = 128
# With as few in flight, an answer should not wait for others. With more, for so many seconds for
# each of them, which is short beside what a model takes for as many.
_FEW: Final = 32
_DELAY_PER_CALL_S: Final = 20e-6
_LONGEST_S: Final = 0.005
_KIND: Final = itemgetter(0)


class Turnstile(Generic[T]):
    """Results for futures.

    With many calls in flight, results that come within some milliseconds of one another are given
    together, those that are alike one after the other. A step runs through far more code than a
    processor holds next to it; the second of two that take the same one finds it there.

    Args:
        crowd: how many calls are in flight.
        alike: what results that lead to the same step have in common; something to be sorted by.
        most: how many are given in one turn of the loop.
    """

    __slots__ = ("_alike", "_crowd", "_line", "_loop", "_most", "_turning")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        crowd: Callable[[], int],
        alike: Callable[[T], Any],
        most: int = MOST,
    ) -> None:
        self._loop = loop
        self._crowd = crowd
        self._alike = alike
        self._most = most
        self._line: deque[tuple[Any, asyncio.Future[T], T]] = deque()
        self._turning = False

    def give(self, waiter: asyncio.Future[T], result: T) -> None:
        """The waiter's result, now or soon; nothing for one that does not wait any more."""
        if waiter.done():
            return
        if not self._turning:
            crowd = self._crowd()
            if crowd <= _FEW:
                waiter.set_result(result)
                return
            self._turning = True
            self._loop.call_later(min(_LONGEST_S, crowd * _DELAY_PER_CALL_S), self._turn)
        self._line.append((self._alike(result), waiter, result))

    def _turn(self) -> None:
        """It is time for those in line, as many as one turn may have."""
        line = self._line
        batch = [line.popleft() for _ in range(min(self._most, len(line)))]
        batch.sort(key=_KIND)
        for _, waiter, result in batch:
            if not waiter.done():
                waiter.set_result(result)
        if line:
            self._loop.call_soon(self._turn)
        else:
            self._turning = False
