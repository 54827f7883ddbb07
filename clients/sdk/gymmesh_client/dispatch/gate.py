"""An agent that takes no rollouts is held back, and asked now and then whether it does again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_S: Final = 0.25
_LONGEST_S: Final = 15.0


@dataclass(slots=True)
class Gate:
    """The way to one agent: open, or closed with one probe at a time.

    Attributes:
        patience_s: how long it may stay closed.
        wait_factor: multiplies the waits between probes.
        closed_since: when it closed; None: it is open.
    """

    patience_s: float
    wait_factor: float = 1.0
    closed_since: float | None = None
    _opens_at: float = 0.0
    _refusals: int = 0
    _probing: bool = False

    def admits(self, now: float) -> bool:
        """Whether a rollout may start."""
        if self.closed_since is None:
            return True
        return not self._probing and now >= self._opens_at

    def started(self) -> None:
        """A rollout starts; through a closed gate it is the probe."""
        if self.closed_since is not None:
            self._probing = True

    def refused(self, now: float, retry_after_s: float | None) -> bool:
        """The agent took no rollout. Whether patience is at its end."""
        self._probing = False
        if self.closed_since is None:
            self.closed_since, self._refusals = now, 0
        if now >= self._opens_at:
            # Refusals of rollouts that started together are one.
            self._refusals += 1
            wait = self.wait_factor * _FIRST_S * 2.0 ** min(self._refusals - 1, 30)
            self._opens_at = now + min(_LONGEST_S, max(wait, retry_after_s or 0.0))
        return now - self.closed_since > self.patience_s

    def passed(self) -> None:
        """A rollout began, or ended in any other way: the agent is there."""
        self.closed_since = None
        self._probing = False
        self._opens_at = 0.0

    def abandoned(self) -> None:
        """The probe was cancelled and says nothing."""
        self._probing = False

    def wake_at(self) -> float | None:
        """When to ask `admits` again although nothing has ended; None: it is open or probed."""
        return None if self.closed_since is None or self._probing else self._opens_at
