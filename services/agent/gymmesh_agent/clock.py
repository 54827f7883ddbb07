"""How much time a rollout has: its caller's deadline and the operator's budget."""

from __future__ import annotations

import time
from collections.abc import Callable

# The attempt stops a little before the caller's deadline, so that the caller still receives the
# reason: a tenth of the time, and at most this many seconds.
_REPLY_S = 0.5
_REPLY_SHARE = 0.1
# A peer may be this much later than the agent's own budget, so that the budget ends the rollout
# and is not taken for a slow peer.
_GRACE_S = 1.0
# How long an agent may take to stop: half of the time for the reply, where there is a deadline.
_STOP_S = 0.3
_LEAST_S = 0.001


class RolloutClock:
    """The time of one attempt.

    Args:
        deadline: when the caller's call ends, in the clock's seconds; None: it does not.
        max_wall_s: the operator's budget in seconds, from now.
        now: the clock; `time.monotonic` but for tests.

    Attributes:
        began: when the clock was made.
        stop_s: seconds that an agent may take to stop once it is cancelled.
        deadline_first: whether the caller's deadline ends the attempt, rather than the budget.
    """

    __slots__ = ("_end", "_hops_end", "_now", "began", "deadline_first", "max_wall_s", "stop_s")

    def __init__(
        self,
        deadline: float | None,
        max_wall_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self.began = now()
        self.max_wall_s = max_wall_s
        self.stop_s = _STOP_S
        self.deadline_first = False
        self._end = self.began + max_wall_s
        self._hops_end = self._end + _GRACE_S
        if deadline is not None:
            reply = max(0.0, min(_REPLY_S, _REPLY_SHARE * (deadline - self.began)))
            self.stop_s = reply / 2
            self._hops_end = min(self._hops_end, deadline)
            if deadline - reply <= self._end:
                self._end = deadline - reply
                self.deadline_first = True

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return self._now() - self.began

    def remaining(self) -> float:
        """Seconds until the attempt is stopped, never negative."""
        return max(0.0, self._end - self._now())

    def hop(self, cap: float) -> float:
        """The timeout in seconds of a call to a peer that may take `cap` seconds."""
        return max(_LEAST_S, min(cap, self._hops_end - self._now()))
