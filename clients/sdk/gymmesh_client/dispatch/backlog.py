"""Requested rollouts that have not started: by environment and agent, each in order.

Without shares, the oldest rollout starts first, in any environment. With shares, the environments
take turns in proportion to their weights (stride scheduling: each start advances an environment by
1 / weight, and the environment that is furthest behind is next). So the mix stays constant even if
rollouts of one environment take longer than those of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from gymmesh_client.dispatch.gate import Route

# So many rollouts are read ahead, so that each environment of a mix finds some of its own.
_AHEAD: Final = 4096
_USUAL_WEIGHT: Final = 1.0


class Work(Protocol):
    """What the dispatcher must know of a rollout: its environment, whose share it is counted
    against, the agent that is to run it, and its task, whose repeats are a group.
    """

    @property
    def environment(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def group(self) -> str: ...


W = TypeVar("W", bound=Work)


class Assignment(msgspec.Struct, Generic[W], gc=False):
    """An attempt to run.

    Attributes:
        work: the rollout.
        attempt: the attempt's number.
        tries: how many attempts of this run count, this one included.
        failures: how often it failed in a row, counted or not.
        first_at: when the rollout's first attempt started.
        order: its place among all that was asked for.
        refused_since: since when there is no room for it; None: there was.
        spared: how often an attempt did not count because a service was away, once for each time
            that it went away; `lost_in` is when it did last.
        fault: names the last fault of code that ended an attempt; empty: none did.
        reserved: whether the attempt's number is used up on disk, so that it may be sent.
    """

    # A Struct, as each rollout makes one; never part of a cycle.

    work: W
    attempt: int
    tries: int
    failures: int
    first_at: float | None
    order: int
    refused_since: float | None = None
    spared: int = 0
    lost_in: float | None = None
    fault: str = ""
    reserved: bool = True  # as that of a first attempt is


class Backlog(Generic[W]):
    """Assignments that wait for their turn.

    Args:
        source: the rollouts asked for, each with the number of its first attempt; read lazily.
        shares: weights of environments; those not named weigh 1. Empty: no shares.
        takes_group: whether a rollout of this group may start now; None: any may.
    """

    def __init__(
        self,
        source: Iterator[tuple[W, int]],
        shares: Mapping[str, float],
        takes_group: Callable[[str], bool] | None = None,
    ) -> None:
        self._source = source
        self._takes_group = takes_group
        self._shares = dict(shares)
        self._queues: dict[Route, deque[Assignment[W]]] = {}
        self._passed: dict[str, float] = {}
        self._waiting = 0
        self._count = 0  # how many were read
        self._exhausted = False
        self._unwanted: set[str] = set()
        self._only: Callable[[str], bool] | None = None
        self._dropped: list[Assignment[W]] = []

    @property
    def waiting(self) -> int:
        """How many were read, or came back, and wait."""
        return self._waiting

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is left to read."""
        return not self._waiting and self._exhausted

    def take(self, admits: Callable[[Route], bool] | None = None) -> Assignment[W] | None:
        """The next assignment whose route is admitted; None: all are."""
        if self._shares:
            # A few of each environment are needed for a choice.
            while self._waiting < _AHEAD and not self._exhausted:
                self._read_one()
        elif not self._waiting and admits is None and self._takes_group is None:
            return self._read()  # whatever comes is taken, so it need not wait in a queue
        chosen, some = self._choose(admits) if self._waiting else (None, False)
        while not some and not self._exhausted and self._waiting < _AHEAD:
            self._read_one()
            chosen, some = self._choose(admits)
        if chosen is None:
            return None
        if self._shares:
            weight = self._shares.get(chosen[0], _USUAL_WEIGHT)
            self._passed[chosen[0]] = self._passed.get(chosen[0], 0.0) + 1.0 / weight
        self._waiting -= 1
        return self._queues[chosen].popleft()

    def put_back(self, assignment: Assignment[W]) -> None:
        """It goes before the others of its environment."""
        if assignment.work.group in self._unwanted:
            self._dropped.append(assignment)
            return
        self._queue(assignment.work).appendleft(assignment)
        self._waiting += 1

    def drop_group(self, group: str) -> int:
        """Drop what waits of a group, and what is still to be read; how many waited."""
        self._unwanted.add(group)
        before = self._waiting
        for route, queue in self._queues.items():
            self._dropped.extend(one for one in queue if one.work.group == group)
            self._queues[route] = deque(one for one in queue if one.work.group != group)
        self._waiting = sum(map(len, self._queues.values()))
        return before - self._waiting

    def keep_only(self, begun: Callable[[str], bool]) -> None:
        """Forget what waits, and what is still to be read, of groups that were not begun."""
        self._only = begun
        for route, queue in self._queues.items():
            self._queues[route] = deque(one for one in queue if begun(one.work.group))
        self._waiting = sum(map(len, self._queues.values()))

    def dropped(self) -> list[Assignment[W]]:
        """What was dropped since this was last asked; each rollout once."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def unwanted(self, group: str) -> bool:
        """Whether the group was dropped."""
        return group in self._unwanted

    def _choose(self, admits: Callable[[Route], bool] | None) -> tuple[Route | None, bool]:
        """The route whose turn it is, if any; and whether any waits whose route is admitted."""
        best: tuple[float, int] | None = None
        chosen: Route | None = None
        some = False
        takes_group = self._takes_group
        for route, queue in self._queues.items():
            if not queue or not (admits is None or admits(route)):
                continue
            some = True
            first = queue[0]
            if takes_group is not None and not takes_group(first.work.group):
                continue
            rank = (self._passed.get(route[0], 0.0) if self._shares else 0.0, first.order)
            if best is None or rank < best:
                best, chosen = rank, route
        return chosen, some

    def _read_one(self) -> None:
        assignment = self._read()
        if assignment is not None:
            self._queue(assignment.work).append(assignment)
            self._waiting += 1

    def _read(self) -> Assignment[W] | None:
        """The next that is still wanted; None: nothing is left to read."""
        for work, attempt in self._source:
            self._count += 1
            assignment = Assignment(work, attempt, 1, 0, None, self._count)
            if self._only is not None and not self._only(work.group):
                continue
            if work.group not in self._unwanted:
                return assignment
            self._dropped.append(assignment)
        self._exhausted = True
        return None

    def _queue(self, work: W) -> deque[Assignment[W]]:
        route = route_of(work)
        queue = self._queues.get(route)
        if queue is None:
            queue = self._queues[route] = deque()
            # One that comes late does not get the turns that it was not there for.
            if self._passed:
                self._passed.setdefault(work.environment, min(self._passed.values()))
        return queue


def route_of(work: Work) -> Route:
    """The environment and the agent of a rollout."""
    return work.environment, work.agent
