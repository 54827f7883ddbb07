"""How fast rollouts start: at most so many a second, evenly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Spaces starts.

    Attributes:
        per_s: the most starts a second; None: as they come.
    """

    per_s: float | None = None
    _next: float = float("-inf")

    def admits(self, now: float) -> bool:
        """Whether one may start now."""
        return self.per_s is None or now >= self._next

    def started(self, now: float) -> None:
        """One starts."""
        if self.per_s is not None:
            self._next = max(now, self._next) + 1.0 / self.per_s

    def wake_at(self) -> float | None:
        """When the next one may start; None: at once."""
        return None if self.per_s is None else self._next
