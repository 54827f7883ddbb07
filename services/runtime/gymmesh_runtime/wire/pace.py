"""When a stream's writer comes, where the stream keeps by itself what is to leave."""

from __future__ import annotations

import math

from gymmesh_runtime.wire.batch import Bell


class PacedBell(Bell):
    """A bell that leaves its writer time to find more than one thing to send.

    On a quiet stream, the writer comes at the end of the loop's turn; on a busy one, what is to
    leave gathers for at most `flush_s` since the writer last came.

    Args:
        flush_s: the longest that something waits for others, in seconds.
    """

    __slots__ = ("_came_at", "_flush_s", "wanted")

    def __init__(self, flush_s: float) -> None:
        super().__init__()
        #: Whether something is to leave, now or at a set time.
        self.wanted = False
        self._flush_s = flush_s
        self._came_at = -math.inf

    def want(self, delay_s: float = math.inf) -> None:
        """Have what waits leave in its time; `delay_s`: in so many seconds, if that is sooner."""
        self.wanted = True
        due = self._came_at + (delay_s if delay_s < self._flush_s else self._flush_s)
        if self.rung or due >= self.due:
            return  # it leaves by then
        if due > self.time():
            self.ring_at(due)
        else:
            self.ring()

    async def called(self) -> bool:
        """Wait until something is to leave; False: what there is now is the last."""
        while not self.rung and not self.closed:
            await self.next()
        self.reset()
        self.wanted = False
        self._came_at = self.time()
        return not self.closed
