"""What a servicer knows about the call that it serves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

#: Of calls without metadata.
NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


class CallContext(msgspec.Struct, eq=False, gc=False):
    """One call's method, deadline, metadata and caller.

    ``deadline`` is a ``time.monotonic()`` value in seconds, or None. Deadlines
    do not cross hops by themselves: pass ``timeout(cap)`` to the next one.
    ``connection`` is the ``wire.Exchange`` that the call came on, on which the caller can be
    called; None: it came on another path than the mux.
    """

    # A Struct, as every call makes one: it is filled without a step in Python.

    method: str
    deadline: float | None = None
    metadata: Mapping[str, str] = NO_METADATA
    identity: str = ""
    connection: object | None = None

    def time_remaining(self) -> float:
        """Seconds until the deadline, never negative; infinity when there is none."""
        if self.deadline is None:
            return math.inf
        return max(0.0, self.deadline - time.monotonic())

    def timeout(self, cap: float) -> float:
        """The timeout for a further hop: what remains, and at most ``cap`` seconds."""
        return min(self.time_remaining(), cap)
