"""How many rollouts in flight: as many as asked for, and fewer while the mesh says it is full;
and how fast they start.

A refusal takes one off: what remains in flight is what there was room for. The way back is quick
up to where there was room, and slow beyond that until nothing has been refused for a while:

    good   halfway between the width before the last refusals and what they left; the whole width
           where they left nothing, which is an outage and no want of room
    below  one more for each rollout that was not refused: twice as many after a round of them
    above  one more after a round, then two, four …
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Refusals that come within this time of each other are about the same rollouts.
_ROUND_S: Final = 1.0


@dataclass(slots=True)
class Concurrency:
    """A width between 1 and `most`.

    Attributes:
        most: what the user asked for.
        target: what the agents say they take at present; None: they say nothing. See `aim`.
        limit: the most rollouts in flight now; asked for far more often than it changes.
    """

    most: int
    target: int | None = None
    limit: int = 1
    _fits: float = 1.0
    _good: float = 1.0
    _before: float = 1.0
    _step: float = 1.0
    _refused_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.tune(self.most)

    def tune(self, most: int) -> None:
        """Another number was asked for; what was learned of a smaller one is forgotten."""
        self.most = most
        self._good = float(most)
        self._set(max(1.0, float(most)))

    def aim(self, target: int | None) -> None:
        """The agents say something else now."""
        self.target = target
        self._set(self._fits)

    def crowded(self, now: float, in_flight: int) -> None:
        """One of so many in flight was refused for want of room."""
        if now - self._refused_at >= _ROUND_S:
            self._before = self._fits
        self._refused_at = now
        self._step = 1.0
        left = min(self._fits, float(in_flight)) - 1.0
        self._good = self._before if left < 1.0 else (self._before + left) / 2
        self._set(max(1.0, left))

    def fitted(self) -> None:
        """A rollout ended that was not refused."""
        if self._fits >= self.most:
            return
        if self._fits < self._good:
            self._set(min(self._good, self._fits + 1.0))
            return
        more = self._step / self._fits
        self._step += more
        self._set(min(float(self.most), self._fits + more))

    def _set(self, fits: float) -> None:
        self._fits, limit = fits, int(fits)
        self.limit = limit if self.target is None else max(1, min(limit, self.target))


@dataclass(slots=True)
class Pace:
    """At most so many starts a second, evenly."""

    per_s: float
    _next: float = float("-inf")

    def admits(self, now: float) -> bool:
        """Whether one may start now."""
        return now >= self._next

    def started(self, now: float) -> None:
        """One starts."""
        self._next = max(now, self._next) + 1.0 / self.per_s

    def wake_at(self) -> float:
        """When the next one may start."""
        return self._next
