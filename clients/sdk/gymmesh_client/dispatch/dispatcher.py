"""The dispatcher: hands out attempts and decides what follows from how they end. Pure.

    RUNNING ⇄ PAUSED      `pause`, `resume`
      └──────┴─► DRAINING   `drain`, or `complaint` says why: nothing more is started
                   └─► done when nothing is in flight

Every rollout asked for leaves exactly once: by RECORD or GIVE_UP, which is an outcome, or, when
the run ends before it, by none, and then a resumed run runs it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Generic

from msgspec.structs import replace

from gymmesh_client.dispatch.backlog import Assignment, Backlog, W, route_of
from gymmesh_client.dispatch.causes import (
    Ended,
    agent_is_away,
    cause_of,
    fault_of,
    is_unknown,
    lacks_a_method,
    lost_its_agent,
    service_is_away,
)
from gymmesh_client.dispatch.concurrency import Concurrency, Pace
from gymmesh_client.dispatch.faults import Faults, Streak
from gymmesh_client.dispatch.gate import Gate, Route, ServiceGates
from gymmesh_client.dispatch.terms import Decision, DispatchOptions, RunStateError, State
from gymmesh_runtime.timers import doubled_s

_LONGEST_SENTENCE = 300
# A rollout that finds a service away so often, with others being served in between, may be what
# brings it down: from then on its attempts count.
_SPARED_MOST = 5
# Before the first attempt after one that cost nothing; it doubles from one to the next.
_LOST_WAIT_S = 1.0
_LOST_LONGEST_S = 16.0
_RETRIES_AT_LEAST = 100


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
        # By the agent's name; one that is met for the first time is open.
        self._gates = defaultdict[str, Gate](partial(Gate, options.patience_s, options.wait_factor))
        self._services = ServiceGates(options.patience_s, options.wait_factor)
        self._known: set[str] = set()  # environments in which a rollout was begun
        self._faults = Faults()
        self._streak = Streak(options.max_alike)
        self._failures = 0
        self._later: list[tuple[float, int, Assignment[W]]] = []
        self._in_flight: dict[int, Assignment[W]] = {}
        self._started = 0
        self._retries = 0
        #: What the run does.
        self.state = State.RUNNING
        #: Why the run drains by itself; empty when it does not.
        self.complaint = ""

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
    def away(self) -> dict[str, str]:
        """The agents, models and environments that rollouts wait for, such as `agent 'a'`, with
        their last error; empty: none is known.
        """
        gates = self._gates.items()
        agents = {f"agent '{name}'": "" for name, one in gates if one.closed_since is not None}
        return agents | {one.name: one.message for one in self._services.closed.values()}

    @property
    def done(self) -> bool:
        """Whether nothing is in flight and nothing will be started."""
        if self._in_flight:
            return False
        return self.state is State.DRAINING or (not self._later and self._backlog.empty)

    def next(self, now: float) -> Assignment[W] | None:
        """The attempt to start now, if any."""
        while self._later and self._later[0][0] <= now:
            self._backlog.put_back(heapq.heappop(self._later)[2])
        if self.state is not State.RUNNING or len(self._in_flight) >= self._concurrency.limit:
            return None
        pace = self._pace
        if pace is not None and not pace.admits(now):
            return None
        closed = self._services.closed
        admits = partial(self._admits, now) if closed else None
        for gate in self._gates.values():
            if gate.closed_since is not None:
                admits = partial(self._admits, now)
        if admits is not None and self._is_hopeless(now):
            return None
        found = self._backlog.take(admits)
        if found is None:
            return None
        if found.first_at is None:
            found.first_at = now
        self._in_flight[found.order] = found
        gate = self._gates[found.work.agent]
        if gate.closed_since is not None:  # else it is open, with nothing to be changed
            gate.started(found.order)
        if closed and (service := closed.get(route_of(found.work))) is not None:
            service.started(found.order)
        if pace is not None:
            pace.started(now)
        self._started += 1
        return found

    def wake_at(self, now: float = float("-inf")) -> float | None:
        """When, after now, to ask again although nothing has ended; None: only when something
        has.
        """
        if self.state is not State.RUNNING or self.in_flight >= self.limit:
            return None
        gates = chain(self._gates.values(), self._services.closed.values())
        times = [at for gate in gates for at in gate.wake_at()]
        if self._pace is not None:
            times.append(self._pace.wake_at())
        if self._later:
            times.append(self._later[0][0])
        return min((at for at in times if at > now), default=None)

    def is_probe(self, assignment: Assignment[W]) -> bool:
        """Whether it is to show that what it needs is there again; see `event_came`."""
        if self._gates[assignment.work.agent].closed_since is not None:
            return True
        service = self._services.closed.get(route_of(assignment.work))
        return service is not None and service.probe == assignment.order

    def event_came(self, assignment: Assignment[W], kind: str) -> None:
        """The agent has sent an event of this kind: it is there, and perhaps more than that."""
        self._gates[assignment.work.agent].passed()
        self._services.event_came(route_of(assignment.work), assignment.order, kind)

    def completed(self, assignment: Assignment[W]) -> Decision:
        """An attempt ended with an outcome."""
        self._leave(assignment)
        gate = self._gates[assignment.work.agent]
        if gate.closed_since is not None:  # else it is open, with nothing to be changed
            gate.passed()
        if self._services.closed:
            self._services.ended(route_of(assignment.work), assignment.order)
        if assignment.fault:
            self._faults.mended(assignment.fault)
        self._known.add(assignment.work.environment)
        self._streak.broken()
        self._concurrency.fitted()
        return Decision.RECORD

    def failed(self, assignment: Assignment[W], now: float, ended: Ended) -> Decision:
        """An attempt failed."""
        gate = self._gates[assignment.work.agent]
        in_flight = self.in_flight
        self._leave(assignment)
        if agent_is_away(ended):
            gate.refused(now, assignment.order, ended.retry_after_s, ended.away_s)
            self._services.abandoned(route_of(assignment.work), assignment.order)
            if cause_of(ended).crowded:
                self._concurrency.crowded(now, in_flight)
            if not assignment.failures:
                # Nothing of it was begun, so its time has not begun either.
                assignment.first_at = None
            # Where an agent may run it still, the next one gets another number: the same attempt
            # at both would share one session of the environment.
            if ended.sent:
                assignment = replace(assignment, attempt=assignment.attempt + 1, reserved=False)
            self._backlog.put_back(assignment)
            self._is_hopeless(now)
            return Decision.PUT_BACK
        if not lost_its_agent(ended):
            gate.passed()
        if service_is_away(ended):
            return self._lost(assignment, now, ended)
        if lacks_a_method(ended):
            self._end(ended.message)
            return Decision.LEAVE
        self._services.ended(route_of(assignment.work), assignment.order, ended.reason)
        self._known.add(assignment.work.environment)
        cause = cause_of(ended)
        if cause.crowded:
            self._concurrency.crowded(now, in_flight)
        else:
            self._concurrency.fitted()
        fault = fault_of(ended)
        comes_back = bool(fault) and self._comes_back(assignment, fault)
        factor = self._options.wait_factor
        wait = cause.wait_s(assignment.failures + 1, ended.retry_after_s, factor)
        if (
            not ended.retry_safe
            or comes_back
            or not self._may_retry(assignment, now + wait, cause.counts)
            or self._refused_for_too_long(assignment, now, wait, cause.counts)
        ):
            # Without a second attempt, nothing shows whether a fault of code comes back.
            lasting = comes_back or (bool(fault) and self._options.max_attempts == 1)
            return self._give_up(ended, mendable=ended.retry_safe and not lasting)
        if self.state is State.DRAINING:
            return Decision.LEAVE
        return self._again(assignment, now, wait, counts=cause.counts, fault=fault)

    def dropped(self, assignment: Assignment[W]) -> None:
        """An attempt was cancelled and has no outcome."""
        self._leave(assignment)
        self._gates[assignment.work.agent].abandoned(assignment.order)
        self._services.abandoned(route_of(assignment.work), assignment.order)

    def load(self, target: int | None) -> None:
        """What the agents together take at present; None: they say nothing."""
        self._concurrency.aim(target)

    def pause(self) -> None:
        """Start nothing for now. Raises RunStateError when the run is ending."""
        self._must_not_drain("paused")
        self.state = State.PAUSED

    def resume(self) -> None:
        """Go on. Raises RunStateError when the run is ending."""
        self._must_not_drain("resumed")
        if self.state is State.PAUSED:
            # Nothing was tried for a while, so what is still away is not known.
            self._services.closed.clear()
            for gate in self._gates.values():
                gate.passed()
        self.state = State.RUNNING

    def drain(self) -> None:
        """Start nothing more; what waits has no outcome."""
        self.state = State.DRAINING

    def tune(self, concurrency: int) -> None:
        """Another number of rollouts in flight. Raises RunStateError when it is below 1."""
        if concurrency < 1:
            raise RunStateError(f"concurrency must be at least 1, not {concurrency}")
        self._concurrency.tune(concurrency)

    def keep_only(self, begun: Callable[[str], bool]) -> None:
        """Start no rollouts of groups that were not begun; they are forgotten."""
        self._backlog.keep_only(begun)

    def cancel_group(self, group: str) -> list[Assignment[W]]:
        """Start no repeat of this task any more.

        Returns those in flight, for the collector to cancel; `dropped_work` gives the others.
        """
        self._backlog.drop_group(group)
        later, self._later = self._later, []
        for entry in later:
            if entry[2].work.group == group:
                self._backlog.put_back(entry[2])  # which drops it
            else:
                heapq.heappush(self._later, entry)
        return [one for one in self._in_flight.values() if one.work.group == group]

    def dropped_work(self) -> list[Assignment[W]]:
        """Rollouts of cancelled groups that will not be started; each is given once."""
        return self._backlog.dropped()

    def _admits(self, now: float, route: Route) -> bool:
        """Whether rollouts of a route may start."""
        return self._services.admits(route, now) and self._gates[route[1]].admits(now)

    def _lost(self, assignment: Assignment[W], now: float, ended: Ended) -> Decision:
        """An attempt found a service that it needs away: it costs nothing, and waits."""
        route = route_of(assignment.work)
        if is_unknown(ended) and route[0] not in self._known:
            self._end(ended.message)
            return Decision.LEAVE
        gate = self._services.lost(route, assignment.order, now, ended)
        if not ended.retry_safe or self._backlog.unwanted(assignment.work.group):
            return self._give_up(ended, mendable=True)
        if self._is_hopeless(now) or self.state is State.DRAINING:
            return Decision.LEAVE
        if gate.closed_since != assignment.lost_in:
            assignment.lost_in = gate.closed_since
            assignment.spared += 1
        counts = assignment.spared > _SPARED_MOST
        # Not before the next probe, so that another rollout may be that.
        doubled = doubled_s(_LOST_WAIT_S, assignment.failures + 1, _LOST_LONGEST_S)
        wait = gate.opens_at - now + self._options.wait_factor * doubled
        if not self._may_retry(assignment, now + wait, counts):
            return self._give_up(ended, mendable=True)
        return self._again(assignment, now, wait, counts=counts)

    def _again(
        self, assignment: Assignment[W], now: float, wait: float, *, counts: bool, fault: str = ""
    ) -> Decision:
        """Another attempt follows."""
        self._retries += counts
        again = replace(
            assignment,
            attempt=assignment.attempt + 1,
            tries=assignment.tries + counts,
            failures=assignment.failures + 1,
            fault=fault or assignment.fault,
            reserved=False,
        )
        heapq.heappush(self._later, (now + wait, again.order, again))
        return Decision.RETRY

    def _give_up(self, ended: Ended, *, mendable: bool) -> Decision:
        """A rollout has failed; which may be one too many."""
        self._failures += 1
        if self._streak.failed(ended.boundary, ended.reason, mendable=mendable):
            count, sentence = self._options.max_alike, " ".join(ended.message.split())
            self._end(
                f"{count} rollouts in a row failed for the same reason, and none completed in "
                f"between ({sentence[:_LONGEST_SENTENCE]})"
            )
        if self._failures == self._options.max_failures:
            self._end(f"the number of failed rollouts reached the limit of {self._failures}")
        return Decision.GIVE_UP

    def _comes_back(self, assignment: Assignment[W], fault: str) -> bool:
        """Whether a further attempt would end in the same fault, as far as is known."""
        if assignment.fault == fault:
            self._faults.came_back(fault)
            return True
        return self._faults.comes_back(fault)

    def _may_retry(self, assignment: Assignment[W], at: float, counts: bool) -> bool:
        """Whether another attempt may follow at that time; when the run drains, in a later one."""
        if self._backlog.unwanted(assignment.work.group):
            return False
        if assignment.first_at is not None and at - assignment.first_at > self._options.rollout_s:
            return False
        if not counts:
            return True
        within = self._retries < self._options.retry_share * self._started + _RETRIES_AT_LEAST
        return within and assignment.tries < self._options.max_attempts

    def _refused_for_too_long(
        self, assignment: Assignment[W], now: float, wait: float, counts: bool
    ) -> bool:
        """Whether there was no room for a rollout for longer than patience lasts."""
        if counts:
            assignment.refused_since = None
        elif assignment.refused_since is None:
            assignment.refused_since = now
        since = assignment.refused_since
        return since is not None and now + wait - since > self._options.patience_s

    def _leave(self, assignment: Assignment[W]) -> None:
        if self._in_flight.pop(assignment.order, None) is None:
            raise RuntimeError("this attempt is not running")

    def _is_hopeless(self, now: float) -> bool:
        """Whether something has been away for too long; the run then drains."""
        patience = f"{self._options.patience_s:g} s"
        for name, gate in self._gates.items():
            if gate.is_hopeless(now):
                self._end(
                    f"agent {name!r} has accepted no rollouts for {patience}; check that the "
                    "agent is running"
                )
                return True
        for service in self._services.closed.values():
            if service.is_hopeless(now):
                self._end(f"{service.name} was unreachable for {patience} ({service.message})")
                return True
        return False

    def _end(self, complaint: str) -> None:
        """The run drains by itself."""
        if self.state is not State.DRAINING:
            self.complaint = complaint
            self.drain()

    def _must_not_drain(self, wanted: str) -> None:
        if self.state is State.DRAINING:
            raise RunStateError(f"a run that is ending cannot be {wanted}")
