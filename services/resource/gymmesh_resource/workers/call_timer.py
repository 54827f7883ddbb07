"""The time limit of the running call, which is paused while the call waits for a slot.

Many calls may want the same few sandboxes or workers. Without the pause each would spend its
limit on what the others do, and programs that sleep would end other answers' verdicts in a
time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from gymmesh_runtime.timers import Limit

__all__ = ["CallTimer", "limit_paused", "running_call"]


class CallTimer:
    """The time that one call of a method has left.

    `deadline`: when its caller gives up, in monotonic seconds; None: not known.
    """

    __slots__ = ("_end", "_left", "_limit", "_pauses", "_token", "deadline")

    def __init__(self, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._limit: Limit | None = None
        self._pauses = 0
        self._end = self._left = 0.0

    def start(self, limit: Limit, seconds: float) -> None:
        """The call begins, and its limit was set to `seconds`."""
        self._limit, self._end, self._left = limit, monotonic() + seconds, seconds
        self._token = running_call.set(self)

    def end(self) -> None:
        """The call is over; a pause that goes on has no effect on its limit."""
        self._limit = None
        running_call.reset(self._token)

    def pause(self) -> None:
        """Part of the call begins to wait."""
        self._pauses += 1
        if self._pauses == 1 and self._limit is not None:
            self._left = max(self._end - monotonic(), 0.0)
            self._limit.stop()

    def resume(self) -> None:
        """That wait is over."""
        self._pauses -= 1
        limit = self._limit
        if not self._pauses and limit is not None and not limit.expired:
            self._end = monotonic() + self._left
            limit.set(self._left)


#: That of the running call.
running_call: ContextVar[CallTimer | None] = ContextVar("gymmesh_running_call", default=None)


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
