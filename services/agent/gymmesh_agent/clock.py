"""How much time a rollout has: its caller's deadline and the operator's budget."""

from __future__ import annotations

import time
from collections.abc import Callable

from gymmesh_runtime.timers import Timer

# The attempt stops a little before the caller's deadline, so that the caller still hears why:
# a tenth of the time, and at most this many seconds.
_REPLY_S = 0.5
_REPLY_SHARE = 0.1
# A peer may be this much later than the agent's own budget, so that the budget is what ends
# the rollout and is not taken for a slow peer.
_GRACE_S = 1.0
_STOP_S = 0.3
_LEAST_S = 0.001


class RolloutClock(Timer):
    """The time of one attempt, and the timer that ends it.

    Args:
        deadline: when the caller's call ends, in the clock's seconds; None: it does not.
        max_wall_s: the operator's budget in seconds, from now.
        now: the clock; `time.monotonic` but for tests.
    """

    __slots__ = (
        "_end",
        "_hops_end",
        "_now",
        "_up",
        "began",
        "deadline_first",
        "max_wall_s",
        "stop_s",
    )

    def __init__(
        self,
        deadline: float | None,
        max_wall_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        #: When it was made.
        self.began = start = now()
        self.max_wall_s = max_wall_s
        self._end = end = start + max_wall_s
        self._hops_end = end + _GRACE_S
        #: Seconds that an agent may take to stop once it is cancelled.
        self.stop_s = _STOP_S
        #: Whether it is the caller's deadline that ends the attempt, rather than the budget.
        self.deadline_first = False
        self._up: Callable[[], None] | None = None
        if deadline is not None:
            self._heed(deadline)

    def _heed(self, deadline: float) -> None:
        """The caller's deadline is to be kept, too."""
        reply = min(_REPLY_S, _REPLY_SHARE * max(0.0, deadline - self.began))
        self.stop_s = min(_STOP_S, reply / 2)
        if deadline < self._hops_end:
            self._hops_end = deadline
        if deadline - reply <= self._end:
            self._end = deadline - reply
            self.deadline_first = True

    def start(self, up: Callable[[], None]) -> None:
        """Have `up` called when the attempt's time is up, unless it is stopped before."""
        self._up = up
        self.set(max(0.0, self._end - self._now()))

    def ring(self) -> None:
        """The time is up."""
        if self._up is not None:
            self._up()

    def stop(self) -> None:
        """Nobody is told any more; harmless when it was not started."""
        if self._up is not None:
            self._up = None  # which also cuts the circle of the clock and who started it
            super().stop()

    def remaining(self) -> float:
        """Seconds until the attempt is stopped, never negative."""
        return max(0.0, self._end - self._now())

    def hop(self, cap: float) -> float:
        """The timeout of a call to a peer that may take `cap` seconds."""
        left = self._hops_end - self._now()
        if cap < left:
            left = cap
        return left if left > _LEAST_S else _LEAST_S
