"""When what gathers for a stream is sent."""

from __future__ import annotations

import asyncio
import math
from typing import Final

# With few attempts under way nothing waits for others; with more, so long for each of them, in
# seconds: what a batch saves then costs no throughput, as it takes longer to run as many.
_FEW: Final = 8
_DELAY_PER_ATTEMPT_S: Final = 160e-6


class SendTimer:
    """Tells the one writer of a stream when to send what has gathered.

    On a quiet stream that is at once; on a busy one, some time after something was last sent, so
    that more gathers.

    Args:
        interval_s: that time in seconds, where a sender names no other.
    """

    __slots__ = ("_due", "_interval_s", "_loop", "_sent_at", "_timer", "_wake", "closed")

    def __init__(self, interval_s: float) -> None:
        #: Whether nothing more will be sent after what there is now.
        self.closed = False
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._sent_at = -math.inf
        self._due = math.inf  # when the writer is woken; infinity: nothing is to be sent
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    @property
    def set(self) -> bool:
        """Whether the writer will be woken."""
        return self._due < math.inf

    def send_within(self, delay_s: float | None = None) -> None:
        """Have what has gathered sent within so many seconds of the last time."""
        due = self._sent_at + (self._interval_s if delay_s is None else delay_s)
        if due >= self._due:
            return
        self._due = due
        self._stop_timer()
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self._wake.set)
        else:
            self._wake.set()

    def send_soon(self, attempts: int) -> None:
        """Have it sent soon, with so many attempts under way."""
        delay_s = attempts * _DELAY_PER_ATTEMPT_S if attempts > _FEW else 0.0
        self.send_within(min(delay_s, self._interval_s))

    def send_now(self) -> None:
        """Have it sent at the end of the event loop's turn."""
        self._due = -math.inf
        self._wake.set()

    def close(self) -> None:
        """Have it sent for the last time."""
        self.closed = True
        self.send_now()

    async def wait(self) -> bool:
        """Wait until something is to be sent; False: it is the last."""
        await self._wake.wait()
        if not self.closed:
            self._wake.clear()
        self._stop_timer()
        self._due = math.inf
        self._sent_at = self._loop.time()
        return not self.closed

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
