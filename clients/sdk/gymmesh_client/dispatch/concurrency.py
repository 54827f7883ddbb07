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
        target: what the agents say they take at present; None: they say nothing. See `aim`.
        limit: the most rollouts in flight now; asked for far more often than it changes.
    """

    most: int
    target: int | None = None
    limit: int = 1
    _fits: float = 1.0
    _shrunk_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.tune(self.most)

    def tune(self, most: int) -> None:
        """Another number was asked for; what was learned of a smaller one is forgotten."""
        self.most = most
        self._set(max(1.0, float(most)))

    def aim(self, target: int | None) -> None:
        """The agents say something else now."""
        self.target = target
        self._set(self._fits)

    def crowded(self, now: float, in_flight: int) -> None:
        """Something was refused for want of room with so many in flight."""
        if now - self._shrunk_at < _ROUND_S:
            return
        self._shrunk_at = now
        self._set(max(1.0, min(self._fits, float(in_flight)) * _SHRINK))

    def fitted(self) -> None:
        """A rollout ended that was not refused: one more after each round of them."""
        if self._fits < self.most:
            self._set(min(float(self.most), self._fits + 1.0 / self._fits))

    def _set(self, fits: float) -> None:
        self._fits, limit = fits, int(fits)
        self.limit = limit if self.target is None else max(1, min(limit, self.target))
