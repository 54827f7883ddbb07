"""A limit for log lines that a stranger can cause: one line per second of each kind.

The audit log of refused calls and the mux's warnings use it. The handlers already limit identical
records, see `OneOfEach` in logs.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final

_INTERVAL_S: Final = 1.0
_MOST_KINDS: Final = 10_000


class LogLimit:
    """Decides which lines to write. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # For each kind: when a line was last written, and how many were held back since.
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    def held_back(self, kind: Hashable) -> int | None:
        """How many lines of the kind were suppressed since the last one; None: suppress this line.

        After more than 10,000 kinds, all counts are reset.
        """
        now = self._clock()
        last, count = self._kinds.get(kind, (-math.inf, 0))
        if now - last < _INTERVAL_S:
            self._kinds[kind] = (last, count + 1)
            return None
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        return count
