"""How many rollouts in flight: as many as asked for, and fewer while the mesh says it is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Refusals that come within this time of each other are about the same rollouts.
_ROUND_S: Final = 1.0
_SHRINK: Final = 0.7


@dataclass(slots=True)
class Concurrency:
    """Additive increase, multiplicative decrease, between 1 and `most`.

    Attributes:
        most: what the user asked for.
        target: what the agents say they take at present; None: they say nothing.
    """

    most: int
    target: int | None = None
    _limit: float = -1.0
    _shrunk_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._limit = max(1.0, float(self.most))

    @property
    def limit(self) -> int:
        """The most rollouts in flight now."""
        limit = int(self._limit)
        return limit if self.target is None else max(1, min(limit, self.target))

    def tune(self, most: int) -> None:
        """Another number was asked for; what was learned of a smaller one is forgotten."""
        self.most = most
        self._limit = max(1.0, float(most))

    def crowded(self, now: float, in_flight: int) -> None:
        """Something was refused for want of room with so many in flight."""
        if now - self._shrunk_at < _ROUND_S:
            return
        self._shrunk_at = now
        self._limit = max(1.0, min(self._limit, float(in_flight)) * _SHRINK)

    def fitted(self) -> None:
        """A rollout ended that was not refused: one more after each round of them."""
        if self._limit < self.most:
            self._limit = min(float(self.most), self._limit + 1.0 / self._limit)
