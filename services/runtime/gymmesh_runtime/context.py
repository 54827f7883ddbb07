"""What a servicer is told about the call that it serves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: Of calls without metadata.
NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


class CallContext:
    """One call's method, deadline and metadata.

    ``deadline`` is a ``time.monotonic()`` value in seconds, or None. Deadlines
    do not cross hops by themselves: pass ``timeout(cap)`` to the next one.
    """

    __slots__ = ("deadline", "metadata", "method")

    def __init__(
        self,
        method: str,
        deadline: float | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> None:
        self.method = method
        self.deadline = deadline
        self.metadata = metadata

    def time_remaining(self) -> float:
        """Seconds until the deadline, never negative; infinity when there is none."""
        if self.deadline is None:
            return math.inf
        return max(0.0, self.deadline - time.monotonic())

    def timeout(self, cap: float) -> float:
        """The timeout for a further hop: what remains, and at most ``cap`` seconds."""
        return min(self.time_remaining(), cap)
