"""Decides when the messages that gathered for a stream are sent."""

from __future__ import annotations

import asyncio
import math
from typing import Final

# Up to so many attempts, nothing waits for others. With more, the wait is so many seconds for each
# of them; that costs no throughput, as more attempts take longer to run.
_FEW: Final = 8
_DELAY_PER_ATTEMPT_S: Final = 160e-6


class SendTimer:
    """Tells the one writer of a stream when to send the messages that gathered, on one event loop.

    On a quiet stream the writer sends at once. On a busy stream it sends some time after the last
    send, so that more messages gather.

    Args:
        interval_s: that time in seconds, if a sender sets no other.
    """

    __slots__ = ("_due", "_interval_s", "_loop", "_sent_at", "_timer", "_writer", "closed", "woken")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._sent_at = -math.inf
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer wakes the writer
        self._writer: asyncio.Future[None] | None = None  # what the writer waits on
        #: Whether the writer has been woken and has not come yet.
        self.woken = False
        #: Whether it is closed, so that the writer no longer waits.
        self.closed = False

    def send_within(self, delay_s: float | None = None) -> None:
        """Send the gathered messages within ``seconds`` of the last send."""
        due = self._sent_at + (self._interval_s if delay_s is None else delay_s)
        if due <= self._loop.time():
            self.wake()
        elif due < self._due and not self.woken and not self.closed:
            self._stop_timer()
            self._timer, self._due = self._loop.call_at(due, self.wake), due

    def send_soon(self, attempts: int) -> None:
        """Send soon; how soon depends on the number of running attempts."""
        delay_s = attempts * _DELAY_PER_ATTEMPT_S if attempts > _FEW else 0.0
        self.send_within(min(delay_s, self._interval_s))

    async def wait(self) -> bool:
        """Wait until something must be sent; False: this is the last time."""
        while not self.woken and not self.closed:
            self._writer = self._loop.create_future()
            await self._writer
        self._stop_timer()
        self.woken = False
        self._sent_at = self._loop.time()
        return not self.closed

    def close(self) -> None:
        """Wake the writer for the last time."""
        self.closed = True
        self._stop_timer()
        self.wake()

    def wake(self) -> None:
        """Wake the writer. It runs at the end of the loop's turn, or after its current send."""
        self.woken = True
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._due = None, math.inf
