"""The dispatcher as a whole: whatever happens, each rollout leaves exactly once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch import (
    Assignment,
    Dispatcher,
    DispatchOptions,
    Ended,
    RunStateError,
    State,
    Verdict,
)
from tests.unit.client.dispatch.test_parts import Rollout

Reason = errors_pb2.ErrorReason
TIMEOUT = Ended(
    reason=Reason.ERROR_REASON_MODEL_TIMEOUT,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=True,
    begun=True,
)
AWAY = Ended(
    reason=Reason.ERROR_REASON_PEER_UNAVAILABLE,
    boundary=rollout_pb2.BOUNDARY_AGENT,
    retry_safe=True,
    begun=False,
)
MODEL_AWAY = Ended(
    reason=Reason.ERROR_REASON_MODEL_UNREACHABLE,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=True,
    begun=True,
    component="policy",
    message="the endpoint of model 'policy' cannot be reached",
    metadata={"model": "policy"},
)
REFUSED = Ended(
    reason=Reason.ERROR_REASON_MODEL_CREDENTIAL_REFUSED,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=False,
    begun=True,
    message="the endpoint refused the credential (HTTP 401)",
)
FAULT = Ended(
    reason=Reason.ERROR_REASON_VERIFIER_FAULT,
    boundary=rollout_pb2.BOUNDARY_VERIFIER,
    retry_safe=True,
    begun=True,
    metadata={"exception": "KeyError", "at": "judge.py:17"},
)
NO_ROOM = Ended(
    reason=Reason.ERROR_REASON_SESSION_LIMIT,
    boundary=rollout_pb2.BOUNDARY_RESOURCE,
    retry_safe=True,
    begun=True,
)
INVALID = Ended(
    reason=Reason.ERROR_REASON_TASK_INVALID,
    boundary=rollout_pb2.BOUNDARY_RESOURCE,
    retry_safe=False,
    begun=True,
)

ENDINGS = [None, TIMEOUT, AWAY, NO_ROOM, INVALID, MODEL_AWAY, FAULT]


def dispatcher(count: int, **options: Any) -> Dispatcher[Rollout]:
    """Of `count` rollouts, each of a group of its own."""
    work = iter([(Rollout(str(number)), 1) for number in range(count)])
    return Dispatcher(work, DispatchOptions(**options))


def started(one: Dispatcher[Rollout], now: float) -> Assignment[Rollout]:
    """The next attempt, which there must be."""
    found = one.next(now)
    assert found is not None
    return found


def test_starts_as_many_as_may_be_in_flight() -> None:
    one = dispatcher(5, concurrency=3)
    first = [started(one, 0.0) for _ in range(3)]
    assert one.next(0.0) is None
    assert one.wake_at() is None
    assert one.completed(first[0]) is Verdict.RECORD
    assert started(one, 0.0).work.group == "3"


def test_a_failed_attempt_is_tried_again_after_a_while_with_the_next_number() -> None:
    one = dispatcher(1, max_attempts=3)
    first = started(one, 0.0)
    assert one.failed(first, 1.0, TIMEOUT) is Verdict.RETRY
    assert one.next(1.0) is None
    assert one.wake_at() == 1.5
    second = started(one, 1.5)
    assert (second.attempt, second.tries) == (2, 2)
    assert one.failed(second, 2.0, TIMEOUT) is Verdict.RETRY
    assert one.wake_at() == 3.0  # twice as long
    third = started(one, 3.0)
    assert one.failed(third, 4.0, TIMEOUT) is Verdict.GIVE_UP
    assert one.next(100.0) is None
    assert one.done


def test_what_is_not_safe_to_retry_is_given_up_at_once() -> None:
    one = dispatcher(1, max_attempts=9)
    assert one.failed(started(one, 0.0), 0.0, INVALID) is Verdict.GIVE_UP
    assert one.next(99.0) is None
    assert one.done


def test_an_agent_that_is_away_costs_no_attempts_and_is_probed() -> None:
    one = dispatcher(100, concurrency=50, max_attempts=1)
    first = [started(one, 0.0) for _ in range(50)]
    assert {one.failed(each, 0.1, AWAY) for each in first} == {Verdict.PUT_BACK}
    assert one.next(0.1) is None
    at = one.wake_at()
    assert at is not None
    probe = started(one, at)
    assert one.is_probe(probe)
    assert (probe.attempt, probe.tries) == (1, 1)
    assert one.next(at) is None, "one probe at a time"
    one.heard(probe, "started")
    assert len([started(one, at) for _ in range(49)]) == 49
    assert not one.complaint


def test_a_run_whose_agent_stays_away_drains_and_says_why() -> None:
    one = dispatcher(10, patience_s=60.0)
    now = 0.0
    while (found := one.next(now)) is not None or one.state is State.RUNNING:
        if found is None:
            now = one.wake_at(now) or pytest.fail("it waits for nothing")
        else:
            assert one.failed(found, now, AWAY) is Verdict.PUT_BACK
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
        self.verdicts: Counter[Verdict] = Counter()

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
    assert mesh.verdicts[Verdict.RECORD] == 400
    assert set(mesh.verdicts) == {Verdict.RECORD, Verdict.RETRY}
    meanwhile = sum(mesh.is_away(at) for at in mesh.starts)
    assert meanwhile <= 10, "one probe at a time, ever less often"
    assert mesh.now < 25.0 + 15.0 + 20.0


def test_after_an_outage_of_a_second_a_run_is_as_fast_as_before_within_seconds() -> None:
    one = dispatcher(400, concurrency=50)
    mesh = Outage(one, 5.0, 6.0)
    mesh.run()
    assert mesh.verdicts[Verdict.RECORD] == 400
    assert one.limit == 50
    assert mesh.now < 16.0 + 6.0


def test_a_model_that_stays_away_ends_the_run_and_leaves_its_rollouts_without_outcome() -> None:
    one = dispatcher(400, concurrency=50, patience_s=60.0)
    mesh = Outage(one, 5.0, float("inf"))
    mesh.run()
    assert set(mesh.verdicts) <= {Verdict.RECORD, Verdict.RETRY, Verdict.LEAVE}
    assert mesh.now - 6.0 == pytest.approx(60.0, abs=1.0)
    assert "model 'policy' was away for 60 s" in one.complaint
    assert "cannot be reached" in one.complaint


def test_what_comes_to_its_end_after_patience_has_no_outcome_either() -> None:
    one = dispatcher(2, concurrency=2, patience_s=0.0)
    first, second = started(one, 0.0), started(one, 0.0)
    assert one.failed(first, 1.0, MODEL_AWAY) is Verdict.LEAVE
    assert one.state is State.DRAINING
    assert one.failed(second, 2.0, MODEL_AWAY) is Verdict.LEAVE
    assert one.done


def test_an_outage_holds_back_only_those_that_need_what_is_away() -> None:
    work = iter([(Rollout(str(n), "ab"[n % 2]), 1) for n in range(20)])
    one: Dispatcher[Rollout] = Dispatcher(work, DispatchOptions(concurrency=2))
    first, second = started(one, 0.0), started(one, 0.0)
    assert one.failed(first, 1.0, MODEL_AWAY) is Verdict.RETRY
    one.completed(second)
    now = [started(one, 1.0) for _ in range(2)]
    assert {each.work.environment for each in now} == {"b"}
    assert one.away == ["model 'policy' (the endpoint of model 'policy' cannot be reached)"]


def test_a_rollout_that_brings_a_model_down_is_not_handed_round_for_ever() -> None:
    one = dispatcher(1, concurrency=1, max_attempts=2)
    now, attempts = 0.0, 0
    while (found := one.next(now)) is not None or not one.done:
        if found is None:
            now = one.wake_at(now) or pytest.fail("it parks")
            continue
        attempts += 1
        if one.is_probe(found):
            one.heard(found, "model_call_completed")  # it is there, until the next call
        one.failed(found, now, MODEL_AWAY)
    assert 5 < attempts < 10
    assert one.state is State.RUNNING


def test_an_environment_that_nobody_knows_ends_the_run_at_once() -> None:
    one = dispatcher(100, concurrency=3)
    first = [started(one, 0.0) for _ in range(3)]
    unknown = Ended(
        reason=Reason.ERROR_REASON_SERVICE_NOT_FOUND,
        boundary=rollout_pb2.BOUNDARY_RESOURCE,
        retry_safe=True,
        begun=False,
        message="no resource service named 'math' is serving; known: code",
        metadata={"name": "math", "known": "code"},
    )
    assert [one.failed(each, 5.0, unknown) for each in first] == [Verdict.LEAVE] * 3
    assert one.complaint == unknown.message
    assert one.done
    later = dispatcher(100, concurrency=3)
    later.completed(started(later, 0.0))
    assert later.failed(started(later, 0.0), 5.0, unknown) is Verdict.RETRY, "it was there"


def test_a_run_ends_after_so_many_failures() -> None:
    one = dispatcher(100, concurrency=1, max_attempts=1, max_failures=3)
    for number in range(3):
        assert one.state is State.RUNNING, number
        assert one.failed(started(one, 0.0), 0.0, TIMEOUT) is Verdict.GIVE_UP
        if number < 2:
            one.completed(started(one, 0.0))
    assert one.complaint == "3 rollouts failed, which is the most allowed"
    assert one.done


@pytest.mark.parametrize(("options", "failed"), [({}, 20), ({"max_alike": 5}, 5)])
def test_a_run_all_of_whose_rollouts_are_refused_ends(options: Any, failed: int) -> None:
    one = dispatcher(100, concurrency=1, **options)
    for _ in range(failed):
        assert not one.complaint
        assert one.failed(started(one, 0.0), 0.0, REFUSED) is Verdict.GIVE_UP
    assert f"{failed} rollouts in a row failed for the same reason" in one.complaint
    assert "HTTP 401" in one.complaint
    assert one.done


def test_a_streak_ends_no_run_when_something_completes_or_it_is_switched_off() -> None:
    for options in ({}, {"max_alike": 0}):
        one = dispatcher(100, concurrency=2, **options)
        for number in range(100):
            found = started(one, 0.0)
            if number % 15 == 14 and not options:
                one.completed(found)
            else:
                one.failed(found, 0.0, REFUSED)
        assert not one.complaint


def test_a_fault_that_comes_back_is_not_paid_for_again() -> None:
    one = dispatcher(100, concurrency=1, max_attempts=9, max_alike=0)
    attempts: Counter[int] = Counter()
    now = 0.0
    while not one.done:
        found = one.next(now)
        if found is None:
            now = one.wake_at(now) or now
            continue
        attempts[found.order] += 1
        now += 1.0
        one.failed(found, now, FAULT)
    again = sum(count == 2 for count in attempts.values())
    assert set(attempts.values()) == {1, 2}
    assert 3 <= again <= 4, "three were tried again, perhaps a fourth waited to be, then none"


def test_a_fault_that_a_retry_mends_is_retried_as_ever() -> None:
    one = dispatcher(50, concurrency=1)
    now = 0.0
    verdicts: Counter[Verdict] = Counter()
    while not one.done:
        found = one.next(now)
        if found is None:
            now = one.wake_at(now) or now
        elif found.attempt == 1 or found.order % 10 == 0:
            verdicts[one.failed(found, now, FAULT)] += 1
        else:
            verdicts[one.completed(found)] += 1
    assert verdicts == {Verdict.RETRY: 50, Verdict.RECORD: 45, Verdict.GIVE_UP: 5}


def test_want_of_room_costs_no_attempt_and_makes_the_run_narrower() -> None:
    one = dispatcher(100, concurrency=10, max_attempts=1, patience_s=30.0)
    first = [started(one, 0.0) for _ in range(10)]
    refused = [one.failed(each, 1.0, NO_ROOM) for each in first[:3]]
    assert refused == [Verdict.RETRY] * 3
    assert one.limit == 7
    again = first[3]
    assert one.completed(again) is Verdict.RECORD
    late = started(one, 29.5)
    assert late.attempt == 2
    assert one.failed(late, 29.5, NO_ROOM) is Verdict.GIVE_UP, "it was refused for too long"


def test_retries_of_a_run_have_a_budget() -> None:
    one = dispatcher(1000, concurrency=1000, max_attempts=50, retry_share=0.1)
    verdicts: Counter[Verdict] = Counter()
    now = 0.0
    while not one.done:
        found = one.next(now)
        if found is None:
            now = one.wake_at() or pytest.fail("it waits for nothing")
            continue
        verdicts[one.failed(found, now, TIMEOUT)] += 1
    assert verdicts[Verdict.GIVE_UP] == 1000
    assert 150 <= verdicts[Verdict.RETRY] <= 250


def test_no_attempt_starts_after_a_rollouts_time() -> None:
    one = dispatcher(1, max_attempts=50, rollout_s=10.0)
    assert one.failed(started(one, 0.0), 9.0, TIMEOUT) is Verdict.RETRY
    assert one.failed(started(one, 9.6), 9.8, TIMEOUT) is Verdict.GIVE_UP


def test_pause_resume_tune_and_drain() -> None:
    one = dispatcher(100, concurrency=2)
    first = started(one, 0.0)
    one.pause()
    assert one.next(0.0) is None
    assert not one.done
    one.resume()
    one.tune(5)
    assert len([started(one, 0.0) for _ in range(4)]) == 4
    with pytest.raises(RunStateError, match="at least 1"):
        one.tune(0)
    one.drain()
    assert one.failed(first, 0.0, TIMEOUT) is Verdict.GIVE_UP
    for command in (one.pause, one.resume):
        with pytest.raises(RunStateError, match="ending"):
            command()


def test_a_cancelled_group_gives_back_what_is_in_flight_and_starts_no_more() -> None:
    work = iter([(Rollout(group), 1) for group in "abababab"])
    one: Dispatcher[Rollout] = Dispatcher(work, DispatchOptions(concurrency=3))
    first = [started(one, 0.0) for _ in range(3)]
    assert one.cancel_group("a") == [first[0], first[2]]
    one.dropped(first[0])
    assert one.failed(first[2], 0.0, TIMEOUT) is Verdict.GIVE_UP
    rest = []
    while (found := one.next(0.0)) is not None:
        rest.append(found.work.group)
        one.completed(found)
    assert rest == ["b", "b", "b"]


def test_an_attempt_ends_once() -> None:
    one = dispatcher(1)
    first = started(one, 0.0)
    one.completed(first)
    with pytest.raises(RuntimeError, match="not in flight"):
        one.dropped(first)


class Runs(RuleBasedStateMachine):
    """Any order of starts, endings and commands."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 40
        work = iter(
            [(Rollout(str(n % 10), "ab"[n % 2], "xyz"[n % 3]), 1) for n in range(self.asked)]
        )
        self.options = DispatchOptions(
            concurrency=6, max_attempts=3, shares={"a": 2.0}, patience_s=50.0
        )
        self.one: Dispatcher[Rollout] = Dispatcher(work, self.options)
        self.now = 0.0
        self.flying: dict[int, Assignment[Rollout]] = {}
        self.left: Counter[int] = Counter()
        self.attempts: dict[int, int] = {}
        self.put_back: set[int] = set()
        self.cancelled: set[str] = set()
        self.dropped = 0

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def start(self) -> None:
        found = self.one.next(self.now)
        if found is None:
            return
        assert self.one.state is State.RUNNING
        assert found.order not in self.flying
        assert not self.left[found.order]
        assert found.work.group not in self.cancelled
        before = self.attempts.get(found.order, 0)
        assert found.attempt == before + (found.order not in self.put_back)
        assert found.tries <= self.options.max_attempts
        self.put_back.discard(found.order)
        self.attempts[found.order] = found.attempt
        self.flying[found.order] = found
        assert len(self.flying) <= max(self.one.limit, 1)

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        ended=st.sampled_from(ENDINGS),
    )
    def end(self, data: st.DataObject, ended: Ended | None) -> None:
        order = data.draw(st.sampled_from(sorted(self.flying)))
        assignment = self.flying.pop(order)
        if ended is None:
            verdict = self.one.completed(assignment)
        else:
            verdict = self.one.failed(assignment, self.now, ended)
        if verdict is Verdict.PUT_BACK:
            self.put_back.add(order)
        elif verdict is not Verdict.RETRY:
            self.left[order] += 1

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(sorted(self.flying)))
        self.one.dropped(self.flying.pop(order))
        self.left[order] += 1

    @rule(group=st.integers(0, 9))
    def cancel_group(self, group: int) -> None:
        if len(self.cancelled) < 2:
            self.cancelled.add(str(group))
            for assignment in self.one.cancel_group(str(group)):
                del self.flying[assignment.order]
                self.one.dropped(assignment)
                self.left[assignment.order] += 1

    @rule(command=st.sampled_from(["pause", "resume", "narrow", "wide", "load", "no load"]))
    def steer(self, command: str) -> None:
        one = self.one
        if command in ("pause", "resume") and one.state is State.DRAINING:
            return
        commands: dict[str, Callable[[], None]] = {
            "pause": one.pause,
            "resume": one.resume,
            "narrow": lambda: one.tune(1),
            "wide": lambda: one.tune(6),
            "load": lambda: one.load(2),
            "no load": lambda: one.load(None),
        }
        commands[command]()

    @invariant()
    def nothing_leaves_twice(self) -> None:
        assert all(count == 1 for count in self.left.values())
        assert self.one.in_flight == len(self.flying)

    def teardown(self) -> None:
        """Let it run to its end: what was asked for has left, or the run says why not."""
        if self.one.state is State.PAUSED:
            self.one.resume()
        self.one.load(None)
        for _ in range(10_000):
            if self.one.done:
                break
            for assignment in list(self.flying.values()):
                del self.flying[assignment.order]
                self.one.completed(assignment)
                self.left[assignment.order] += 1
            found = self.one.next(self.now)
            if found is not None:
                self.flying[found.order] = found
            elif not self.one.done:
                self.now = max(self.now, self.one.wake_at(self.now) or self.now)
        assert self.one.done, "it parks"
        self.nothing_leaves_twice()
        if self.one.state is State.RUNNING and not self.cancelled:
            assert len(self.left) == self.asked


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
