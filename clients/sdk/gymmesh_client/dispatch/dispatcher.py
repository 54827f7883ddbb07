"""The dispatcher: hands out attempts and decides what follows from how they end. Pure.

    RUNNING ⇄ PAUSED      `pause`, `resume`
      └──────┴─► DRAINING   `drain`, or an agent that stays away: nothing more is started
                   └─► done when nothing is in flight

Every rollout asked for leaves exactly once: by RECORD or GIVE_UP, which is an outcome, or, when
the run ends before it, by none, and then a resumed run runs it.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic

from msgspec.structs import replace

from gymmesh_client.dispatch.backlog import Assignment, Backlog, W
from gymmesh_client.dispatch.causes import agent_is_away, cause_of
from gymmesh_client.dispatch.concurrency import Concurrency
from gymmesh_client.dispatch.gate import Gate
from gymmesh_client.dispatch.pace import Pace


class State(enum.Enum):
    """What a run does."""

    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"


class Verdict(enum.Enum):
    """What the collector does with an attempt that ended."""

    RECORD = "record"
    RETRY = "retry"
    GIVE_UP = "give up"
    PUT_BACK = "put back"
    """It was never begun: the same attempt waits for its agent."""


class RunStateError(Exception):
    """A command that the run's state does not allow; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How to dispatch.

    Attributes:
        concurrency: the most rollouts in flight.
        max_attempts: the most attempts of one rollout in one run, the first included.
        retry_share: retries may be this share of the rollouts started, and 100 more.
        rollout_s: no further attempt starts later than this after a rollout's first.
        starts_per_s: the most starts a second; None: as they come.
        shares: weights of environments in a mix; empty: the order of the tasks.
        patience_s: how long an agent may take no rollouts before the run drains, and how long
            a rollout may be refused for want of room.
        wait_factor: multiplies the waits before a further attempt, or probe of an agent.
    """

    concurrency: int = 64
    max_attempts: int = 2
    retry_share: float = 1.0
    rollout_s: float = float("inf")
    starts_per_s: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    patience_s: float = 300.0
    wait_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt failed.

    Attributes:
        reason: of errors.proto.
        boundary: of rollout.proto.
        retry_safe: whether a fresh attempt is safe.
        begun: whether the agent sent anything of it.
        retry_after_s: what the failing side asked for.
    """

    reason: int
    boundary: int
    retry_safe: bool
    begun: bool
    retry_after_s: float | None = None


_RETRIES_AT_LEAST = 100
_RUNNING = State.RUNNING


class _Gates(dict[str, Gate]):
    """The ways to agents, by name; one that is met for the first time is open."""

    def __init__(self, patience_s: float, wait_factor: float) -> None:
        super().__init__()
        self._patience_s = patience_s
        self._wait_factor = wait_factor

    def __missing__(self, agent: str) -> Gate:
        gate = self[agent] = Gate(self._patience_s, self._wait_factor)
        return gate


class Dispatcher(Generic[W]):
    """Hands out attempts of the rollouts in `source`; `takes_group` as in Backlog."""

    def __init__(
        self,
        source: Iterator[tuple[W, int]],
        options: DispatchOptions,
        takes_group: Callable[[str], bool] | None = None,
    ) -> None:
        self._options = options
        self._backlog = Backlog(source, options.shares, takes_group)
        self._concurrency = Concurrency(options.concurrency)
        per_s = options.starts_per_s
        self._pace = None if per_s is None else Pace(per_s)
        self._gates = _Gates(options.patience_s, options.wait_factor)
        self._later: list[tuple[float, int, Assignment[W]]] = []
        self._dropped: list[Assignment[W]] = []
        self._in_flight: dict[int, Assignment[W]] = {}
        self._started = 0
        self._retries = 0
        self._state = State.RUNNING
        #: Why the run drains by itself; empty when it does not.
        self.complaint = ""

    @property
    def state(self) -> State:
        """What the run does."""
        return self._state

    @property
    def in_flight(self) -> int:
        """How many attempts are in flight."""
        return len(self._in_flight)

    @property
    def limit(self) -> int:
        """The most that may be, at present."""
        return self._concurrency.limit

    @property
    def concurrency(self) -> int:
        """The most that may be, as asked for."""
        return self._concurrency.most

    @property
    def retrying(self) -> int:
        """How many wait before a further attempt."""
        return len(self._later)

    @property
    def waiting(self) -> int:
        """How many could start, were there room."""
        return self._backlog.waiting

    @property
    def agents_away(self) -> list[str]:
        """The agents that take no rollouts at present."""
        return [name for name, gate in self._gates.items() if gate.closed_since is not None]

    @property
    def done(self) -> bool:
        """Whether nothing is in flight and nothing will be started."""
        if self._in_flight:
            return False
        return self._state is State.DRAINING or (not self._later and self._backlog.empty)

    def next(self, now: float) -> Assignment[W] | None:
        """The attempt to start now, if any."""
        if self._later:
            self._release(now)
        if self._state is not _RUNNING or len(self._in_flight) >= self._concurrency.limit:
            return None
        pace = self._pace
        if pace is not None and not pace.admits(now):
            return None
        admits = None
        for gate in self._gates.values():
            if gate.closed_since is not None:
                admits = self._admits(now)
                break
        found = self._backlog.take(admits)
        if found is None:
            return None
        if found.first_at is None:
            found.first_at = now
        self._in_flight[found.order] = found
        gate = self._gates[found.work.agent]
        if gate.closed_since is not None:  # else it is open, with nothing to be changed
            gate.started()
        if pace is not None:
            pace.started(now)
        self._started += 1
        return found

    def wake_at(self, now: float = float("-inf")) -> float | None:
        """When, after now, to ask again although nothing has ended; None: only when something
        has.
        """
        if self._state is not State.RUNNING or self.in_flight >= self.limit:
            return None
        times: list[float | None] = [gate.wake_at() for gate in self._gates.values()]
        if self._pace is not None:
            times.append(self._pace.wake_at())
        if self._later:
            times.append(self._later[0][0])
        return min((at for at in times if at is not None and at > now), default=None)

    def is_probe(self, assignment: Assignment[W]) -> bool:
        """Whether it is to show that its agent is there again; `begun` then tells so early."""
        return self._gates[assignment.work.agent].closed_since is not None

    def begun(self, assignment: Assignment[W]) -> None:
        """The agent has sent something of it: it is there."""
        self._gates[assignment.work.agent].passed()

    def completed(self, assignment: Assignment[W]) -> Verdict:
        """An attempt ended with an outcome."""
        self._leave(assignment)
        gate = self._gates[assignment.work.agent]
        if gate.closed_since is not None:  # else it is open, with nothing to be changed
            gate.passed()
        self._concurrency.fitted()
        return Verdict.RECORD

    def failed(self, assignment: Assignment[W], now: float, ended: Ended) -> Verdict:
        """An attempt failed."""
        gate = self._gates[assignment.work.agent]
        in_flight = self.in_flight
        self._leave(assignment)
        if agent_is_away(ended.reason, ended.boundary, begun=ended.begun):
            if gate.refused(now, ended.retry_after_s):
                self._complain(assignment.work.agent)
            if cause_of(ended.reason).crowded:
                self._concurrency.crowded(now, in_flight)
            if not assignment.failures:
                # Nothing of it was begun, so its time has not begun either.
                assignment.first_at = None
            self._backlog.put_back(assignment)
            return Verdict.PUT_BACK
        gate.passed()
        cause = cause_of(ended.reason, ended.boundary)
        if cause.crowded:
            self._concurrency.crowded(now, in_flight)
        else:
            self._concurrency.fitted()
        factor = self._options.wait_factor
        wait = cause.wait_s(assignment.failures + 1, ended.retry_after_s, factor)
        if not ended.retry_safe or not self._may_retry(assignment, now + wait, cause.counts):
            return Verdict.GIVE_UP
        self._retries += cause.counts
        again = replace(
            assignment,
            attempt=assignment.attempt + 1,
            tries=assignment.tries + cause.counts,
            failures=assignment.failures + 1,
        )
        heapq.heappush(self._later, (now + wait, again.order, again))
        return Verdict.RETRY

    def dropped(self, assignment: Assignment[W]) -> None:
        """An attempt was cancelled and has no outcome."""
        self._leave(assignment)
        self._gates[assignment.work.agent].abandoned()

    def load(self, target: int | None) -> None:
        """What the agents together take at present; None: they say nothing."""
        self._concurrency.aim(target)

    def pause(self) -> None:
        """Start nothing for now. Raises RunStateError when the run is ending."""
        self._must_not_drain("paused")
        self._state = State.PAUSED

    def resume(self) -> None:
        """Go on. Raises RunStateError when the run is ending."""
        self._must_not_drain("resumed")
        self._state = State.RUNNING

    def drain(self) -> None:
        """Start nothing more; what waits has no outcome."""
        self._state = State.DRAINING

    def tune(self, concurrency: int) -> None:
        """Another number of rollouts in flight. Raises RunStateError when it is below 1."""
        if concurrency < 1:
            raise RunStateError(f"concurrency must be at least 1, not {concurrency}")
        self._concurrency.tune(concurrency)

    def cancel_group(self, group: str) -> list[Assignment[W]]:
        """Nobody wants the repeats of this task any more: none is started.

        Returns those in flight, for the collector to cancel; `dropped_work` gives the others.
        """
        self._backlog.drop_group(group)
        self._dropped.extend(entry[2] for entry in self._later if entry[2].work.group == group)
        self._later = [entry for entry in self._later if entry[2].work.group != group]
        heapq.heapify(self._later)
        return [one for one in self._in_flight.values() if one.work.group == group]

    def dropped_work(self) -> list[Assignment[W]]:
        """Rollouts of cancelled groups that will not be started; each is given once."""
        dropped, self._dropped = self._dropped, []
        return dropped + self._backlog.dropped()

    def _admits(self, now: float) -> Callable[[str], bool]:
        """Whether rollouts of an agent may start."""
        gates = self._gates
        return lambda agent: agent not in gates or gates[agent].admits(now)

    def _release(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            self._backlog.put_back(heapq.heappop(self._later)[2])

    def _may_retry(self, assignment: Assignment[W], at: float, counts: bool) -> bool:
        if self._state is State.DRAINING or self._backlog.unwanted(assignment.work.group):
            return False
        age = at - (at if assignment.first_at is None else assignment.first_at)
        if age > self._options.rollout_s:
            return False
        if not counts:
            return age <= self._options.patience_s
        within = self._retries < self._options.retry_share * self._started + _RETRIES_AT_LEAST
        return within and assignment.tries < self._options.max_attempts

    def _leave(self, assignment: Assignment[W]) -> None:
        if self._in_flight.pop(assignment.order, None) is None:
            raise RuntimeError("an attempt ended that is not in flight")

    def _complain(self, agent: str) -> None:
        if self._state is not State.DRAINING:
            self.complaint = (
                f"agent '{agent}' has taken no rollouts for {self._options.patience_s:g} s; "
                "see that it runs, then resume the run"
            )
            self.drain()

    def _must_not_drain(self, wanted: str) -> None:
        if self._state is State.DRAINING:
            raise RunStateError(f"a run that is ending cannot be {wanted}")
