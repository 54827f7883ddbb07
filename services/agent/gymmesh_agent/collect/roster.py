"""The attempts of one stream: those that wait, those that run, those that ended. Pure."""

from __future__ import annotations

import enum
import heapq
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect.ledger import Key


class Start(NamedTuple):
    """An attempt that was asked for. `due` is when it must end, in the clock's seconds."""

    key: Key
    request: agent_pb2.RunRolloutRequest
    due: float


class Entrance(enum.Enum):
    """What becomes of a start."""

    WAITS = "waits"
    KNOWN = "known"
    FULL = "full"


class Whereabouts(enum.Enum):
    """Where an attempt is that is to be cancelled."""

    WAITED = "waited"
    RUNS = "runs"
    NOWHERE = "nowhere"


class Roster:
    """The attempts of one stream.

    A start that comes again, as it does when a collector cannot know whether it arrived before
    the connection broke, is known as long as the attempt waits, runs or has ended with events
    that are not acknowledged.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[Key, Start] = OrderedDict()
        self._dues: list[tuple[float, Key]] = []
        self._running: set[Key] = set()
        self._ended: set[Key] = set()

    @property
    def waiting(self) -> int:
        """How many wait to start."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def idle(self) -> bool:
        """Whether none waits or runs."""
        return not self._waiting and not self._running

    def enter(self, start: Start) -> Entrance:
        """Take a start into the queue."""
        key = start.key
        if key in self._waiting or key in self._running or key in self._ended:
            return Entrance.KNOWN
        if len(self._waiting) >= self._max_waiting:
            return Entrance.FULL
        self._waiting[key] = start
        if start.due < math.inf:
            heapq.heappush(self._dues, (start.due, key))
        return Entrance.WAITS

    def next(self) -> Start | None:
        """The start whose turn it is; it runs from now on."""
        if not self._waiting:
            return None
        key, start = self._waiting.popitem(last=False)
        self._running.add(key)
        return start

    def cancel(self, key: Key) -> Whereabouts:
        """Take a waiting attempt out; a running one runs until it is `over`."""
        if self._waiting.pop(key, None) is not None:
            return Whereabouts.WAITED
        return Whereabouts.RUNS if key in self._running else Whereabouts.NOWHERE

    def told(self, key: Key) -> None:
        """An attempt's terminal event happened."""
        self._ended.add(key)

    def over(self, key: Key) -> None:
        """An attempt does not run any more, however it ended."""
        self._running.discard(key)

    def forget(self, keys: Iterable[Key]) -> None:
        """The collector has stored how these ended."""
        self._ended.difference_update(keys)

    def overdue(self, now: float) -> list[Key]:
        """Take out those that waited until their time was over."""
        late = []
        while self._dues and self._dues[0][0] <= now:
            due, key = heapq.heappop(self._dues)
            start = self._waiting.get(key)
            if start is not None and start.due <= due:
                del self._waiting[key]
                late.append(key)
        return late

    def clear_waiting(self) -> list[Key]:
        """Take out all that wait."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._dues.clear()
        return waiting

    def running_keys(self) -> list[Key]:
        """Those that run."""
        return list(self._running)


class HasRoster(Protocol):
    """A stream, as far as its turn is concerned."""

    @property
    def roster(self) -> Roster:
        """Its attempts."""


S = TypeVar("S", bound=HasRoster)


def whose_turn(streams: Iterable[S], capacity: int) -> S | None:
    """Which stream starts an attempt next: of those that wait, the one with the fewest running.

    None when nobody waits, or `capacity` attempts run side by side already. A stream that has all
    places for itself gives them up one by one, as its attempts end.
    """
    total = 0
    chosen: S | None = None
    for stream in streams:
        roster = stream.roster
        total += roster.running
        if roster.waiting and (chosen is None or roster.running < chosen.roster.running):
            chosen = stream
    return chosen if total < capacity else None


def fair_share(capacity: int, streams: int) -> int:
    """How many attempts one of several streams should have running; at least one."""
    return max(1, capacity // max(1, streams))
