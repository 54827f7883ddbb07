"""The time limit of the running call, which is paused while the call waits for a slot.

Otherwise programs that sleep would end the verdicts of answers that wait for them in a time-out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from types import TracebackType

from gymmesh_runtime.timers import Limit


class CallTimer(Limit):
    """The limit of one call of a method, `seconds` long, that of the running call inside.

    `deadline`: when the call's caller gives up, in monotonic seconds; None: not known.
    """

    __slots__ = ("_end", "_left", "_over", "_pauses", "_token", "deadline")

    def __init__(self, seconds: float, deadline: float | None = None) -> None:
        super().__init__(seconds)
        self.deadline = deadline
        self._end = monotonic() + seconds
        self._left = seconds
        self._pauses = 0
        self._over = False

    def __enter__(self) -> CallTimer:
        self._token = running_call.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over = True  # a pause that goes on has no effect from here on
        running_call.reset(self._token)
        super().__exit__(kind, error, traceback)

    def pause(self) -> None:
        """Part of the call begins to wait."""
        self._pauses += 1
        if self._pauses == 1 and not self._over:
            self._left = max(self._end - monotonic(), 0.0)
            self.stop()

    def resume(self) -> None:
        """That wait is over."""
        self._pauses -= 1
        if not self._pauses and not self._over and not self.expired:
            self._end = monotonic() + self._left
            self.set(self._left)


#: That of the running call.
running_call: ContextVar[CallTimer | None] = ContextVar("gymmesh_running_call", default=None)


def caller_waits_s() -> float:
    """Seconds for which the running call's caller still waits; infinite where that isn't known."""
    timer = running_call.get()
    if timer is None or timer.deadline is None:
        return math.inf
    return timer.deadline - monotonic()


@contextmanager
def limit_paused() -> Iterator[None]:
    """Pause the limit of the running call inside. What waits there must have a bound of its own."""
    timer = running_call.get()
    if timer is None:
        yield
        return
    timer.pause()
    try:
        yield
    finally:
        timer.resume()
