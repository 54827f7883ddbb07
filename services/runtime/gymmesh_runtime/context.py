"""The context of a call, for the servicer that serves it."""

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

    ``deadline`` is a ``time.monotonic()`` value in seconds, or None. A deadline does not apply to
    further calls automatically: pass ``timeout(cap)`` to them. ``connection`` is the
    ``wire.Exchange`` on which the call arrived, and on which the caller can be called. It is None
    if the call did not arrive over the mux.
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
        """The timeout for a further call: the time until the deadline, at most ``cap`` seconds."""
        return min(self.time_remaining(), cap)
