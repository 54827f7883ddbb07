"""Faults that come again with every attempt, and failures that befall every rollout. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# After so many rollouts whose retry failed as the first attempt did, and none that was mended.
_ENOUGH: Final = 3
_REMEMBERED: Final = 1024


class Faults:
    """Which faults a further attempt does not mend.

    A fault is named by a text that is the same whenever the same code fails in the same place.
    """

    def __init__(self) -> None:
        # How many rollouts it came back in; None: one was mended, so it comes and goes.
        self._came_back: OrderedDict[str, int | None] = OrderedDict()

    def comes_back(self, fault: str) -> bool:
        """Whether no retry is worth its price any more."""
        return (self._came_back.get(fault) or 0) >= _ENOUGH

    def came_back(self, fault: str) -> None:
        """It was the end of a rollout's attempt and then of its retry."""
        count = self._came_back.get(fault, 0)
        if count is not None:
            self._set(fault, count + 1)

    def mended(self, fault: str) -> None:
        """The retry of a rollout that it had ended fared better."""
        self._set(fault, None)

    def _set(self, fault: str, count: int | None) -> None:
        self._came_back[fault] = count
        self._came_back.move_to_end(fault)
        if len(self._came_back) > _REMEMBERED:
            self._came_back.popitem(last=False)


class Streak:
    """Rollouts that failed one after the other for the same reason, which no retry mends; `most`
    of them end the run, unless that is 0.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kind: tuple[int, int] | None = None
        self._length = 0

    def failed(self, boundary: int, reason: int, *, mendable: bool) -> bool:
        """A rollout failed for good; whether the run is to end."""
        kind = None if mendable else (boundary, reason)
        self._length = self._length + 1 if kind is not None and kind == self._kind else 1
        self._kind = kind
        return kind is not None and self._length == self._most

    def broken(self) -> None:
        """A rollout completed."""
        self._kind = None
