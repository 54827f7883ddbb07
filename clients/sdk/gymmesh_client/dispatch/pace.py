"""How fast rollouts start: at most so many a second, evenly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Spaces starts."""

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
