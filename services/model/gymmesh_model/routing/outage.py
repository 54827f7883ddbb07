"""Which failures of an endpoint are worth a line in the log: those that begin an outage. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Outage:
    """The outages of one endpoint.

    every_s: seconds from one that is told to the next, at least, so that an endpoint that comes and
    goes fills no log. number: how many were told. Times given to the methods are seconds on one
    monotonic clock.
    """

    every_s: float = 60.0
    number: int = 0
    _began: float | None = None
    _told: bool = False
    _next: float = -math.inf

    def failed(self, now: float, *, sure: bool) -> bool:
        """A call failed; whether that is to be told. sure: whether it shows an outage by itself."""
        if self._began is None:
            self._began = now
        if self._told or not sure or now < self._next:
            return False
        self._told = True
        self._next = now + self.every_s
        self.number += 1
        return True

    def answered(self, now: float) -> float | None:
        """A call was answered: the seconds of the outage that it ends, if that was told."""
        lasted = now - self._began if self._told and self._began is not None else None
        self._began, self._told = None, False
        return lasted
