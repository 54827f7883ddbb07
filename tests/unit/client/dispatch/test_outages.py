"""What is away: who waits, who is probed, and how a run goes on."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import replace

import pytest

from gymmesh_client.dispatch import (
    Assignment,
    Decision,
    Dispatcher,
    DispatchOptions,
    State,
)
from tests.unit.client.dispatch.endings import (
    AWAY,
    MODEL_AWAY,
    dispatcher,
    started,
)
from tests.unit.client.dispatch.test_parts import Rollout


def test_an_agent_that_is_away_costs_no_attempts_and_is_probed() -> None:
    one = dispatcher(100, concurrency=50, max_attempts=1)
    first = [started(one, 0.0) for _ in range(50)]
    assert {one.failed(each, 0.1, AWAY) for each in first} == {Decision.PUT_BACK}
    assert one.next(0.1) is None
    at = one.wake_at()
    assert at is not None
    probe = started(one, at)
    assert one.is_probe(probe)
    assert (probe.attempt, probe.tries) == (1, 1)
    assert one.next(at) is None, "one probe at a time"
    one.event_came(probe, "started")
    assert len([started(one, at) for _ in range(49)]) == 49
    assert not one.complaint


def test_what_an_agent_may_run_still_gets_another_number_and_costs_no_attempt() -> None:
    one = dispatcher(1, max_attempts=1)
    lost = replace(AWAY, sent=True)
    assert one.failed(started(one, 0.0), 0.1, lost) is Decision.PUT_BACK
    at = one.wake_at()
    assert at is not None
    again = started(one, at)
    assert (again.attempt, again.tries) == (2, 1)
    assert one.completed(again) is Decision.RECORD


def test_a_run_whose_agent_stays_away_drains_and_says_why() -> None:
    one = dispatcher(10, patience_s=60.0)
    now = 0.0
    while (found := one.next(now)) is not None or one.state is State.RUNNING:
        if found is None:
            now = one.wake_at(now) or pytest.fail("it waits for nothing")
        else:
            assert one.failed(found, now, AWAY) is Decision.PUT_BACK
    assert now == 60.0
    assert "tool_loop" in one.complaint
    assert one.done


class Outage:
    """A mesh in virtual time: rollouts take 2 s, and a model is away for a while.

    ends: when each rollout in flight ends, and its assignment. starts: when attempts started.
    """

    def __init__(self, one: Dispatcher[Rollout], away_from: float, away_to: float) -> None:
        self.one = one
        self.away_from, self.away_to = away_from, away_to
        self.now = 0.0
        self.ends: list[tuple[float, int, Assignment[Rollout]]] = []
        self.starts: list[float] = []
        self.verdicts: Counter[Decision] = Counter()

    def run(self) -> None:
        """Let it go to its end."""
        one = self.one
        while not one.done:
            while (found := one.next(self.now)) is not None:
                self.starts.append(self.now)
                heapq.heappush(self.ends, (self.end_of(self.now), found.order, found))
            times = [at for at in (one.wake_at(self.now),) if at is not None]
            times += [end[0] for end in self.ends[:1]]
            if not times:
                assert one.done, "it parks"
                return
            self.now = min(times)
            while self.ends and self.ends[0][0] <= self.now:
                self.settle(heapq.heappop(self.ends)[2])

    def is_away(self, at: float) -> bool:
        return self.away_from <= at < self.away_to

    def end_of(self, start: float) -> float:
        """Its model is called when it starts, and after a second."""
        return start + 0.01 if self.is_away(start) else start + 2.0

    def settle(self, assignment: Assignment[Rollout]) -> None:
        if self.is_away(self.now):
            self.verdicts[self.one.failed(assignment, self.now, MODEL_AWAY)] += 1
        else:
            self.verdicts[self.one.completed(assignment)] += 1


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_an_outage_of_a_model_fails_no_rollout_and_starts_little_meanwhile(
    max_attempts: int,
) -> None:
    one = dispatcher(400, concurrency=50, max_attempts=max_attempts)
    mesh = Outage(one, 5.0, 25.0)
    mesh.run()
    assert mesh.verdicts[Decision.RECORD] == 400
    assert set(mesh.verdicts) == {Decision.RECORD, Decision.RETRY}
    meanwhile = sum(mesh.is_away(at) for at in mesh.starts)
    assert meanwhile <= 10, "one probe at a time, ever less often"
    assert mesh.now < 25.0 + 15.0 + 20.0


def test_attempts_that_cost_nothing_wait_longer_each_time() -> None:
    one = dispatcher(1, concurrency=1, max_attempts=1)
    now = 0.0
    starts: list[float] = []
    while len(starts) < 5:
        found = one.next(now)
        if found is None:
            now = one.wake_at(now) or pytest.fail("it parks")
            continue
        starts.append(now)
        if one.is_probe(found):
            # As where one of two instances is away: others are served, and this one never.
            one.event_came(found, "model_call_completed")
        assert one.failed(found, now, MODEL_AWAY) is Decision.RETRY
    waits = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(after > 1.5 * before for before, after in itertools.pairwise(waits)), waits
    assert sum(waits) > 15.0  # the lease of an instance that was killed


def test_after_an_outage_of_a_second_a_run_is_as_fast_as_before_within_seconds() -> None:
    one = dispatcher(400, concurrency=50)
    mesh = Outage(one, 5.0, 6.0)
    mesh.run()
    assert mesh.verdicts[Decision.RECORD] == 400
    assert one.limit == 50
    assert mesh.now < 16.0 + 6.0


def test_a_model_that_stays_away_ends_the_run_and_leaves_its_rollouts_without_outcome() -> None:
    one = dispatcher(400, concurrency=50, patience_s=60.0)
    mesh = Outage(one, 5.0, float("inf"))
    mesh.run()
    assert set(mesh.verdicts) <= {Decision.RECORD, Decision.RETRY, Decision.LEAVE}
    assert mesh.now - 6.0 == pytest.approx(60.0, abs=1.0)
    assert "model 'policy' was unreachable for 60 s" in one.complaint
    assert "cannot be reached" in one.complaint


def test_what_comes_to_its_end_after_patience_has_no_outcome_either() -> None:
    one = dispatcher(2, concurrency=2, patience_s=0.0)
    first, second = started(one, 0.0), started(one, 0.0)
    assert one.failed(first, 1.0, MODEL_AWAY) is Decision.LEAVE
    assert one.state is State.DRAINING
    assert one.failed(second, 2.0, MODEL_AWAY) is Decision.LEAVE
    assert one.done


def test_an_outage_holds_back_only_those_that_need_what_is_away() -> None:
    work = iter([(Rollout(str(n), "ab"[n % 2]), 1) for n in range(20)])
    one: Dispatcher[Rollout] = Dispatcher(work, DispatchOptions(concurrency=2))
    first, second = started(one, 0.0), started(one, 0.0)
    assert one.failed(first, 1.0, MODEL_AWAY) is Decision.RETRY
    one.completed(second)
    now = [started(one, 1.0) for _ in range(2)]
    assert {each.work.environment for each in now} == {"b"}
    assert one.away == {"model 'policy'": "the endpoint of model 'policy' cannot be reached"}


def test_a_rollout_that_brings_a_model_down_is_not_handed_round_for_ever() -> None:
    one = dispatcher(1, concurrency=1, max_attempts=2)
    now, attempts = 0.0, 0
    while (found := one.next(now)) is not None or not one.done:
        if found is None:
            now = one.wake_at(now) or pytest.fail("it parks")
            continue
        attempts += 1
        if one.is_probe(found):
            one.event_came(found, "model_call_completed")  # it is there, until the next call
        one.failed(found, now, MODEL_AWAY)
    assert 5 < attempts < 10
    assert one.state is State.RUNNING
