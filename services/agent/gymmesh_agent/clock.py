"""How much time a rollout has: its caller's deadline and the operator's budget."""

from __future__ import annotations

import time
from collections.abc import Callable

from gymmesh_runtime.timers import Timer, Wheel

# The attempt stops a little before the caller's deadline, so that the caller still hears why:
# a tenth of the time, and at most this many seconds.
_REPLY_S = 0.5
_REPLY_SHARE = 0.1
# A peer may be this much later than the agent's own budget, so that the budget is what ends
# the rollout and is not taken for a slow peer.
_GRACE_S = 1.0
# How long an agent may take to stop: half of that time, where there is a deadline.
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
        # Comparisons here and below: `min` and `max` take many times as long.
        if deadline is not None:
            reply = _REPLY_SHARE * (deadline - start)
            if reply > _REPLY_S:
                reply = _REPLY_S
            elif reply < 0:
                reply = 0.0
            self.stop_s = reply / 2
            if deadline < self._hops_end:
                self._hops_end = deadline
            if deadline - reply <= end:
                self._end = deadline - reply
                self.deadline_first = True

    def start(self, up: Callable[[], None], wheel: Wheel | None = None) -> None:
        """Have `up` called when the attempt's time is up, unless it is stopped before.

        To be called as soon as the clock is made. `wheel`: of the running loop, if it is at hand.
        """
        self._up = up
        self.set(self._end - self.began, wheel)

    def ring(self) -> None:
        """The time is up."""
        if self._up is not None:
            self._up()

    def stop(self) -> None:
        """Nobody is told any more; harmless when it was not started."""
        if self._up is not None:
            self._up = None  # which also cuts the circle of the clock and who started it
            self._waits.discard(self)

    def remaining(self) -> float:
        """Seconds until the attempt is stopped, never negative."""
        left = self._end - self._now()
        return left if left > 0 else 0.0

    def hop(self, cap: float) -> float:
        """The timeout of a call to a peer that may take `cap` seconds."""
        now = self._now  # called as a method, it would be looked for in the class first
        left = self._hops_end - now()
        if cap < left:
            left = cap
        return left if left > _LEAST_S else _LEAST_S
