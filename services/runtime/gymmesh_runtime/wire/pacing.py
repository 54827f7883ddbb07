"""When what gathers for a stream is sent."""

from __future__ import annotations

import math
from typing import Final

from gymmesh_runtime.wire.batch import Wakeup

# With few attempts under way nothing waits for others; with more, so long for each of them, in
# seconds: what a batch saves then costs no throughput, as it takes longer to run as many.
_FEW: Final = 8
_DELAY_PER_ATTEMPT_S: Final = 160e-6


class SendTimer(Wakeup):
    """Tells the one writer of a stream when to send what has gathered.

    On a quiet stream that is at once; on a busy one, some time after something was last sent, so
    that more gathers.

    Args:
        interval_s: that time in seconds, where a sender names no other.
    """

    __slots__ = ("_interval_s", "_sent_at")

    def __init__(self, interval_s: float) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._sent_at = -math.inf

    def send_within(self, delay_s: float | None = None) -> None:
        """Have what has gathered sent within so many seconds of the last time."""
        due = self._sent_at + (self._interval_s if delay_s is None else delay_s)
        if due <= self.time():
            self.wake()
        elif not self.woken:
            self.wake_at(due)

    def send_soon(self, attempts: int) -> None:
        """Have it sent soon, with so many attempts under way."""
        delay_s = attempts * _DELAY_PER_ATTEMPT_S if attempts > _FEW else 0.0
        self.send_within(min(delay_s, self._interval_s))

    async def wait(self) -> bool:
        """Wait until something is to be sent; False: it is the last."""
        while not self.woken and not self.closed:
            await self.next()
        self.reset()
        self._sent_at = self.time()
        return not self.closed
