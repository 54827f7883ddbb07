"""Decides which failures of an endpoint are logged: those that begin an outage. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Outage:
    """The outages of one endpoint.

    every_s: the least seconds between two logged outages, so that an endpoint that keeps failing
    and recovering does not fill the log. number: how many were logged. Times given to the methods
    are seconds on one monotonic clock.
    """

    every_s: float = 60.0
    number: int = 0
    _began: float | None = None
    _logged: bool = False
    _next: float = -math.inf

    def failed(self, now: float, *, sure: bool) -> bool:
        """A call failed. Returns whether to log an outage. sure: this failure alone shows one."""
        if self._began is None:
            self._began = now
        if self._logged or not sure or now < self._next:
            return False
        self._logged = True
        self._next = now + self.every_s
        self.number += 1
        return True

    def answered(self, now: float) -> float | None:
        """A call was answered. Returns the seconds of the outage that it ends, if that one was
        logged.
        """
        lasted = now - self._began if self._logged and self._began is not None else None
        self._began, self._logged = None, False
        return lasted
