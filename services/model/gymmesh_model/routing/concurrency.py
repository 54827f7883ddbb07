"""How many calls an endpoint gets at a time: a pure state machine, told the time by its caller.

A refusal takes the limit down to what the endpoint does have in hand; a metric that shows overload
takes it down by the factor `backoff`. From there it rises while calls succeed and others wait for
a place: in each round trip by half of what is missing to the limit at which trouble began, so an
outage of a second costs a few round trips, and a limit that was too high is found again in steps
that get smaller. Past that point each round trip adds as much as the ones before it together.

What began before the last decrease says nothing about the limit in force, so its success does not
count, nor does a second sign of overload that was asked for before it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Aimd:
    """The limit of one endpoint, in calls; a fraction, since several may share a whole number.

    cap: never above, and where it starts. floor: never below. backoff: what an overload seen in
    metrics leaves, between 0 and 1. step: the least that a round trip adds. Times are seconds on
    one monotonic clock.
    """

    cap: float
    floor: float = 1.0
    backoff: float = 0.7
    step: float = 1.0
    limit: float = -1.0
    held: bool = False
    _decreased: float = float("-inf")
    # The limit at which the last trouble began, and whether a call has succeeded since.
    _trouble: float = 0.0
    _recovering: bool = False

    def __post_init__(self) -> None:
        self.floor = min(self.floor, self.cap)
        if self.limit < 0:
            self.limit = self.cap

    def succeeded(self, started: float, waiting: bool) -> bool:
        """A call that began at `started` was answered; True when the limit rose.

        waiting: whether calls wait for a place, without which more places would change nothing.
        """
        if started < self._decreased:
            return False
        self._recovering = False
        if self.limit >= self.cap or not waiting or self.held:
            return False
        missing = self._trouble - self.limit
        a_round = max(self.step, missing / 2 if missing > 0 else -missing)
        self.limit = min(self.cap, self.limit + a_round / max(self.limit, 1.0))
        return True

    def refused(self, in_hand: int, now: float) -> bool:
        """A call was refused while the endpoint had `in_hand` others; True when the limit fell."""
        return self._fall(float(in_hand), now)

    def overloaded(self, asked: float, now: float) -> bool:
        """Metrics that were asked for at `asked` show overload; True when the limit fell."""
        return asked >= self._decreased and self._fall(self.limit * self.backoff, now)

    def hold(self, held: bool) -> None:
        """Whether the endpoint is so full that the limit must not rise."""
        self.held = held

    def _fall(self, limit: float, now: float) -> bool:
        limit = max(self.floor, limit)
        if limit >= self.limit:
            return False
        if not self._recovering:
            # Without a success in between, it is the same trouble still.
            self._recovering = True
            self._trouble = self.limit
        self._decreased = now
        self.limit = limit
        return True
