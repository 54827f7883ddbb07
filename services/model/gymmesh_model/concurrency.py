"""How many calls an endpoint gets at a time: a pure state machine, told the time by its caller.

Additive increase, multiplicative decrease (Chiu and Jain, 1989). The limit rises while calls
succeed and others are waiting for a place, by about `step` per round trip; a sign of overload
takes it down by the factor `backoff`. What began before the last decrease says nothing about the
limit in force, so neither its success nor its failure counts: at most one decrease per round
trip.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Aimd:
    """The limit of one endpoint, in calls; a fraction, since several may share a whole number.

    cap: never above, and where it starts. floor: never below. backoff: what a decrease leaves,
    between 0 and 1. Times are seconds on one monotonic clock.
    """

    cap: float
    floor: float = 1.0
    backoff: float = 0.7
    step: float = 1.0
    limit: float = -1.0
    held: bool = False
    _decreased: float = float("-inf")

    def __post_init__(self) -> None:
        self.floor = min(self.floor, self.cap)
        if self.limit < 0:
            self.limit = self.cap

    def succeeded(self, started: float, waiting: bool) -> bool:
        """A call that began at `started` was answered; True when the limit rose.

        waiting: whether calls wait for a place, without which more places would change nothing.
        """
        if self.limit >= self.cap or not waiting or self.held or started < self._decreased:
            return False
        self.limit = min(self.cap, self.limit + self.step / max(self.limit, 1.0))
        return True

    def overloaded(self, started: float, now: float) -> bool:
        """A sign of overload on what began at `started`; True when the limit fell."""
        if started < self._decreased or self.limit <= self.floor:
            return False
        self._decreased = now
        self.limit = max(self.floor, self.limit * self.backoff)
        return True

    def hold(self, held: bool) -> None:
        """Whether the endpoint is so full that the limit must not rise."""
        self.held = held
