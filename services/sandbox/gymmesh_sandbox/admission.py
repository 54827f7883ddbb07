"""Places for sandboxes, and the calls that wait for them. Pure: callers pass in how much is free.

The width is how many sandboxes may exist. While memory or processors are short, the width shrinks
to the number of running sandboxes. When both are clearly sufficient again, it grows step by step
(hysteresis), so that it does not oscillate.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final

_LONGEST_RETRY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """How much of the machine is free.

    Attributes:
        memory_free: available memory, as a fraction of all memory that the service may use (0 to
            1).
        load: processes that run or are ready to run, for each processor.
    """

    memory_free: float
    load: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """When the width changes.

    Attributes:
        low_memory, high_load: if one of these limits is passed, no further sandbox starts.
        ample_memory, low_load: if both of these limits are passed, there is room for more.
    """

    low_memory: float = 0.10
    ample_memory: float = 0.15
    high_load: float = 8.0
    low_load: float = 4.0


class Width:
    """How many sandboxes may exist.

    Args:
        most: the maximum.
        bounds: when the width changes.
        processors: the machine's processors. While memory suffices, at least this many sandboxes
            may exist, however busy the processors are.
    """

    def __init__(self, most: int, bounds: Bounds | None = None, *, processors: int = 1) -> None:
        self.most = most
        self.now = most
        self._bounds = bounds or Bounds()
        self._processors = processors

    def update(self, pressure: Pressure, running: int) -> None:
        """Updates the width from how much is free, while this many sandboxes run. At least one
        may exist.
        """
        bounds = self._bounds
        if pressure.memory_free < bounds.low_memory:
            self.now = max(1, min(self.now, running))
        elif pressure.load > bounds.high_load:
            self.now = min(self.now, max(running, self._processors))
        elif pressure.memory_free > bounds.ample_memory and pressure.load < bounds.low_load:
            self.now = min(self.most, self.now + max(1, self.now // 8))


class PlaceAnswer(enum.Enum):
    """The answer to a call that requests places."""

    ADMITTED = "admitted"
    WAITS = "waits"
    REFUSED = "refused"


class Admission:
    """The places of a service: first come, first served.

    A number identifies a call. Calls of CreateSandbox need one place; calls of ForkSandbox may need
    several at once.
    """

    def __init__(self, width: Width, max_waiting: int) -> None:
        self.width = width
        self._max_waiting = max_waiting
        #: Places that are taken.
        self.taken = 0
        self._queue: deque[tuple[int, int]] = deque()

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._queue)

    def ask(self, call: int, places: int = 1) -> PlaceAnswer:
        """A call requests places, all at once."""
        if places > self.width.most:
            return PlaceAnswer.REFUSED
        if not self._queue and self.taken + places <= self.width.now:
            self.taken += places
            return PlaceAnswer.ADMITTED
        if len(self._queue) >= self._max_waiting:
            return PlaceAnswer.REFUSED
        self._queue.append((call, places))
        return PlaceAnswer.WAITS

    def leave(self, call: int) -> bool:
        """A call no longer waits; False: it did not wait."""
        for entry in self._queue:
            if entry[0] == call:
                self._queue.remove(entry)
                return True
        return False

    def release(self, places: int = 1) -> None:
        """Places are free again."""
        self.taken -= places

    def admit(self) -> list[int]:
        """The waiting calls that now have their places, in the order of arrival."""
        admitted = []
        while self._queue and self.taken + self._queue[0][1] <= self.width.now:
            call, places = self._queue.popleft()
            self.taken += places
            admitted.append(call)
        return admitted

    def retry_after_s(self) -> float:
        """Seconds after which a client should try again: more if more calls wait for each place."""
        return min(1.0 + self.waiting / self.width.now, _LONGEST_RETRY_S)
