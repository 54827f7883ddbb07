"""The dispatcher as a whole: whatever happens, each rollout leaves exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch import (
    Decision,
    Dispatcher,
    DispatchOptions,
    Ended,
    RunStateError,
    State,
)
from tests.unit.client.dispatch.endings import (
    FAULT,
    INVALID,
    NO_ROOM,
    REFUSED,
    TIMEOUT,
    dispatcher,
    started,
)
from tests.unit.client.dispatch.test_parts import Rollout

Reason = errors_pb2.ErrorReason


def test_starts_as_many_as_may_be_in_flight() -> None:
    one = dispatcher(5, concurrency=3)
    first = [started(one, 0.0) for _ in range(3)]
    assert one.next(0.0) is None
    assert one.wake_at() is None
    assert one.completed(first[0]) is Decision.RECORD
    assert started(one, 0.0).work.group == "3"


def test_a_failed_attempt_is_tried_again_after_a_while_with_the_next_number() -> None:
    one = dispatcher(1, max_attempts=3)
    first = started(one, 0.0)
    assert one.failed(first, 1.0, TIMEOUT) is Decision.RETRY
    assert one.next(1.0) is None
    assert one.wake_at() == 1.5
    second = started(one, 1.5)
    assert (second.attempt, second.tries) == (2, 2)
    assert one.failed(second, 2.0, TIMEOUT) is Decision.RETRY
    assert one.wake_at() == 3.0  # twice as long
    third = started(one, 3.0)
    assert one.failed(third, 4.0, TIMEOUT) is Decision.GIVE_UP
    assert one.next(100.0) is None
    assert one.done


def test_what_is_not_safe_to_retry_is_given_up_at_once() -> None:
    one = dispatcher(1, max_attempts=9)
    assert one.failed(started(one, 0.0), 0.0, INVALID) is Decision.GIVE_UP
    assert one.next(99.0) is None
    assert one.done


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
    assert [one.failed(each, 5.0, unknown) for each in first] == [Decision.LEAVE] * 3
    assert one.complaint == unknown.message
    assert one.done
    later = dispatcher(100, concurrency=3)
    later.completed(started(later, 0.0))
    assert later.failed(started(later, 0.0), 5.0, unknown) is Decision.RETRY, "it was there"


def test_a_model_without_what_the_agent_asks_of_it_ends_the_run_at_once() -> None:
    one = dispatcher(100, concurrency=3)
    one.completed(started(one, 0.0))
    first = [started(one, 0.0) for _ in range(3)]
    unable = Ended(
        reason=Reason.ERROR_REASON_NOT_OFFERED,
        boundary=rollout_pb2.BOUNDARY_MODEL,
        retry_safe=False,
        begun=True,
        message="model 'policy' can't score continuations",
    )
    assert [one.failed(each, 5.0, unable) for each in first] == [Decision.LEAVE] * 3
    assert one.complaint == unable.message
    assert one.done


def test_a_run_ends_after_so_many_failures() -> None:
    one = dispatcher(100, concurrency=1, max_attempts=1, max_failures=3)
    for number in range(3):
        assert one.state is State.RUNNING, number
        assert one.failed(started(one, 0.0), 0.0, TIMEOUT) is Decision.GIVE_UP
        if number < 2:
            one.completed(started(one, 0.0))
    assert one.complaint == "the number of failed rollouts reached the limit of 3"
    assert one.done


@pytest.mark.parametrize(("options", "failed"), [({}, 20), ({"max_alike": 5}, 5)])
def test_a_run_all_of_whose_rollouts_are_refused_ends(options: Any, failed: int) -> None:
    one = dispatcher(100, concurrency=1, **options)
    for _ in range(failed):
        assert not one.complaint
        assert one.failed(started(one, 0.0), 0.0, REFUSED) is Decision.GIVE_UP
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
    verdicts: Counter[Decision] = Counter()
    while not one.done:
        found = one.next(now)
        if found is None:
            now = one.wake_at(now) or now
        elif found.attempt == 1 or found.order % 10 == 0:
            verdicts[one.failed(found, now, FAULT)] += 1
        else:
            verdicts[one.completed(found)] += 1
    assert verdicts == {Decision.RETRY: 50, Decision.RECORD: 45, Decision.GIVE_UP: 5}


def test_want_of_room_costs_no_attempt_and_makes_the_run_narrower() -> None:
    one = dispatcher(100, concurrency=10, max_attempts=1, patience_s=30.0)
    first = [started(one, 0.0) for _ in range(10)]
    refused = [one.failed(each, 1.0, NO_ROOM) for each in first[:3]]
    assert refused == [Decision.RETRY] * 3
    assert one.limit == 7
    again = first[3]
    assert one.completed(again) is Decision.RECORD
    late = started(one, 29.5)
    assert late.attempt == 2
    assert one.failed(late, 29.5, NO_ROOM) is Decision.GIVE_UP, "it was refused for too long"


def test_retries_of_a_run_have_a_budget() -> None:
    one = dispatcher(1000, concurrency=1000, max_attempts=50, retry_share=0.1)
    verdicts: Counter[Decision] = Counter()
    now = 0.0
    while not one.done:
        found = one.next(now)
        if found is None:
            now = one.wake_at() or pytest.fail("it waits for nothing")
            continue
        verdicts[one.failed(found, now, TIMEOUT)] += 1
    assert verdicts[Decision.GIVE_UP] == 1000
    assert 150 <= verdicts[Decision.RETRY] <= 250


def test_no_attempt_starts_after_a_rollouts_time() -> None:
    one = dispatcher(1, max_attempts=50, rollout_s=10.0)
    assert one.failed(started(one, 0.0), 9.0, TIMEOUT) is Decision.RETRY
    assert one.failed(started(one, 9.6), 9.8, TIMEOUT) is Decision.GIVE_UP


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
    assert one.failed(first, 0.0, TIMEOUT) is Decision.LEAVE
    for command in (one.pause, one.resume):
        with pytest.raises(RunStateError, match="ending"):
            command()


def test_what_would_be_tried_again_has_no_outcome_when_the_run_ends() -> None:
    """A later session tries it; a rollout without a further attempt has failed."""
    one = dispatcher(2, concurrency=2, max_attempts=2)
    first, second = started(one, 0.0), started(one, 0.0)
    assert one.failed(second, 0.0, TIMEOUT) is Decision.RETRY
    second = started(one, 60.0)
    one.drain()
    assert one.failed(first, 60.0, TIMEOUT) is Decision.LEAVE
    assert one.failed(second, 60.0, TIMEOUT) is Decision.GIVE_UP
    assert one.done


def test_a_cancelled_group_gives_back_what_is_in_flight_and_starts_no_more() -> None:
    work = iter([(Rollout(group), 1) for group in "abababab"])
    one: Dispatcher[Rollout] = Dispatcher(work, DispatchOptions(concurrency=3))
    first = [started(one, 0.0) for _ in range(3)]
    assert one.cancel_group("a") == [first[0], first[2]]
    one.dropped(first[0])
    assert one.failed(first[2], 0.0, TIMEOUT) is Decision.GIVE_UP
    rest = []
    while (found := one.next(0.0)) is not None:
        rest.append(found.work.group)
        one.completed(found)
    assert rest == ["b", "b", "b"]


def test_an_attempt_ends_once() -> None:
    one = dispatcher(1)
    first = started(one, 0.0)
    one.completed(first)
    with pytest.raises(RuntimeError, match="not running"):
        one.dropped(first)


def test_faults_end_a_run_of_one_attempt_too() -> None:
    one = dispatcher(100, concurrency=1, max_attempts=1)
    for _ in range(20):
        assert not one.complaint
        assert one.failed(started(one, 0.0), 0.0, FAULT) is Decision.GIVE_UP
    assert "20 rollouts in a row failed for the same reason" in one.complaint
