"""Addresses that could not be reached. Calls avoid each address for a pause, which grows. Pure.

missed ──► avoided ──its pause is over──► one call tries ──reached──► as any other
              ▲                                 │
              └──────missed, twice the pause────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_FIRST_S: Final = 0.5
# The length of most leases: by then a registry does not list what is gone any more. A call that
# tries has as long to say what it found.
_LONGEST_S: Final = 15.0


@dataclass(slots=True)
class _Pause:
    seconds: float
    until: float
    tried: bool = False


class Unreached:
    """The addresses that calls avoid if there are others. True while there are any.

    ``clock`` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def missed(self, address: str) -> None:
        """The address could not be reached."""
        now, pause = self._clock(), self._pauses.get(address)
        if pause is None:
            seconds = _FIRST_S
        elif pause.tried or now >= pause.until:
            seconds = min(2 * pause.seconds, _LONGEST_S)
        else:
            return  # calls that fail within a pause failed together
        self._pauses[address] = _Pause(seconds, now + seconds)

    def reached(self, address: str) -> None:
        """The address was reached, or a new instance has it."""
        self._pauses.pop(address, None)

    def passes_over(self, address: str) -> bool:
        """Whether calls should avoid the address now."""
        pause = self._pauses.get(address)
        return pause is not None and self._clock() < pause.until

    def tries(self, address: str) -> None:
        """A call tries the address. If its pause is over, other calls wait for this call's
        result.
        """
        pause = self._pauses.get(address)
        if pause is not None and self._clock() >= pause.until:
            pause.until, pause.tried = self._clock() + _LONGEST_S, True
