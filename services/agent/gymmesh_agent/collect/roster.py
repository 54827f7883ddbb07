"""The attempts of one stream: those that wait, those that run, those that ended. Pure."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from gymmesh_agent.collect.ledger import Key


class Start(Protocol):
    """An attempt that was asked for, until it is over."""

    @property
    def key(self) -> Key:
        """Which it is."""

    @property
    def due(self) -> float:
        """When it must end, in the clock's seconds; infinity: there is no such time."""


A = TypeVar("A", bound=Start)


class Entrance(enum.Enum):
    """What becomes of a start."""

    WAITS = "waits"
    KNOWN = "known"
    FULL = "full"


# Their names: the class is asked for a member by each attempt otherwise, which costs more than all
# the rest of entering.
WAITS: Final = Entrance.WAITS
KNOWN: Final = Entrance.KNOWN
FULL: Final = Entrance.FULL


class Whereabouts(enum.Enum):
    """Where an attempt is that is to be cancelled."""

    WAITED = "waited"
    RUNS = "runs"
    NOWHERE = "nowhere"


class Roster(Generic[A]):
    """The attempts of one stream.

    A start that comes again, as it does when a collector cannot know whether it arrived before
    the connection broke, is known as long as the attempt waits, runs or has ended with events
    that are not acknowledged.
    """

    def __init__(self, max_waiting: int) -> None:
        #: Those that wait to start, in the order in which they came.
        self.waiting: OrderedDict[Key, A] = OrderedDict()
        #: Those that run.
        self.running: dict[Key, A] = {}
        self._max_waiting = max_waiting
        self._earliest = math.inf  # none of those that wait is due before
        self._ended: set[Key] = set()

    @property
    def idle(self) -> bool:
        """Whether none waits or runs."""
        return not self.waiting and not self.running

    def enter(self, start: A) -> Entrance:
        """Take a start into the queue."""
        key = start.key
        if key in self.waiting or key in self.running or key in self._ended:
            return KNOWN
        if len(self.waiting) >= self._max_waiting:
            return FULL
        self.waiting[key] = start
        if start.due < self._earliest:
            self._earliest = start.due
        return WAITS

    def next(self) -> A | None:
        """The start whose turn it is; it runs from now on."""
        if not self.waiting:
            return None
        key, start = self.waiting.popitem(last=False)
        self.running[key] = start
        return start

    def cancel(self, key: Key) -> Whereabouts:
        """Take a waiting attempt out; a running one runs until it is `over`."""
        if self.waiting.pop(key, None) is not None:
            return Whereabouts.WAITED
        return Whereabouts.RUNS if key in self.running else Whereabouts.NOWHERE

    def told(self, key: Key) -> None:
        """An attempt's terminal event happened."""
        self._ended.add(key)

    def over(self, key: Key) -> None:
        """An attempt does not run any more, however it ended."""
        self.running.pop(key, None)

    def forget(self, keys: Iterable[Key]) -> None:
        """The collector has stored how these ended."""
        self._ended.difference_update(keys)

    def overdue(self, now: float) -> list[Key]:
        """Take out those that waited until their time was over."""
        if now < self._earliest:
            return []
        late = sorted((start.due, key) for key, start in self.waiting.items() if start.due <= now)
        for _, key in late:
            del self.waiting[key]
        self._earliest = min((start.due for start in self.waiting.values()), default=math.inf)
        return [key for _, key in late]

    def clear_waiting(self) -> list[Key]:
        """Take out all that wait."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting


class HasRoster(Protocol):
    """A stream, as far as its turn is concerned."""

    @property
    def roster(self) -> Roster[Any]:
        """Its attempts."""


S = TypeVar("S", bound=HasRoster)


def whose_turn(streams: Iterable[S], capacity: int) -> tuple[S, int] | None:
    """Which stream starts an attempt next, and how many it starts in a row.

    Of those that wait, the one with the fewest running starts one, and so on. None when nobody
    waits, or `capacity` attempts run side by side already. A stream that has all places for
    itself gives them up one by one, as its attempts end.
    """
    total, fewest, second = 0, capacity, capacity
    chosen: S | None = None
    for stream in streams:
        roster = stream.roster
        running = len(roster.running)
        total += running
        if roster.waiting:
            if running < fewest:
                chosen, fewest, second = stream, running, fewest
            elif running < second:
                second = running
    if chosen is None or total >= capacity:
        return None
    return chosen, min(capacity - total, max(1, second - fewest))


def fair_share(capacity: int, streams: int) -> int:
    """How many attempts one of several streams should have running; at least one."""
    return max(1, capacity // max(1, streams))
