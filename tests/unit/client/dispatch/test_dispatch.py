"""The dispatcher as a whole: whatever happens, each rollout leaves exactly once."""

from __future__ import annotations

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
    one.begun(probe)
    assert len([started(one, at) for _ in range(49)]) == 49
    assert not one.complaint


def test_a_run_whose_agent_stays_away_drains_and_says_why() -> None:
    one = dispatcher(10, patience_s=60.0)
    now = 0.0
    while one.state is State.RUNNING:
        found = one.next(now)
        if found is None:
            at = one.wake_at()
            assert at is not None
            now = at
            continue
        assert one.failed(found, now, AWAY) is Verdict.PUT_BACK
    assert 60 < now < 90
    assert "tool_loop" in one.complaint
    assert one.done


def test_want_of_room_costs_no_attempt_and_makes_the_run_narrower() -> None:
    one = dispatcher(100, concurrency=10, max_attempts=1, patience_s=30.0)
    first = [started(one, 0.0) for _ in range(10)]
    assert {one.failed(each, 1.0, NO_ROOM) for each in first} == {Verdict.RETRY}
    assert one.limit == 7
    again = started(one, 1.0)  # a fresh one: the others wait
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
    @rule(data=st.data(), ended=st.sampled_from([None, TIMEOUT, AWAY, NO_ROOM, INVALID]))
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
                self.now = max(self.now, self.one.wake_at() or self.now)
        assert self.one.done, "it parks"
        self.nothing_leaves_twice()
        if self.one.state is State.RUNNING and not self.cancelled:
            assert len(self.left) == self.asked


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
