"""The attempts of a stream, and whose turn it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect_stream.run_queue import (
    QueuedAttempt,
    RunQueue,
    fair_share,
    next_to_start,
)


def attempt(number: int, due: float = math.inf) -> QueuedAttempt:
    return QueuedAttempt((f"r{number}", 1), agent_pb2.RunRolloutRequest(), due=due)


@dataclass
class Owner:
    queue: RunQueue


def test_starts_wait_in_order_and_the_queue_is_bounded() -> None:
    queue = RunQueue(max_waiting=2)
    assert [queue.add(attempt(number)) for number in (1, 2, 3)] == [True, True, False]
    first = queue.start_next()
    assert first is not None
    assert first.key == ("r1", 1)
    assert (len(queue.waiting), len(queue.running)) == (1, 1)
    assert queue.add(attempt(3))


def test_a_start_that_comes_again_is_known_until_its_end_is_acknowledged() -> None:
    queue, one = RunQueue(10), attempt(1)
    assert not queue.knows(one.key)
    queue.add(one)
    assert queue.knows(one.key)
    queue.start_next()
    assert queue.knows(one.key)
    queue.remember(one.key)
    queue.finish(one)
    assert queue.idle
    assert queue.knows(one.key)
    queue.forget([one.key])
    assert not queue.knows(one.key)


def test_an_end_that_is_acknowledged_before_the_attempt_is_over_leaves_nothing_behind() -> None:
    queue, one = RunQueue(10), attempt(1)
    queue.add(one)
    queue.start_next()
    queue.remember(one.key)
    queue.forget([one.key])
    queue.finish(one)
    assert not queue.knows(one.key)


def test_one_that_waits_can_be_taken_out() -> None:
    queue = RunQueue(10)
    queue.add(attempt(1))
    queue.add(attempt(2))
    queue.start_next()
    assert not queue.remove_waiting(("r1", 1))  # it runs
    assert queue.remove_waiting(("r2", 1))
    assert not queue.remove_waiting(("r2", 1))
    assert queue.start_next() is None
    assert list(queue.running) == [("r1", 1)]


def test_those_whose_time_is_over_do_not_start() -> None:
    queue = RunQueue(10)
    for number, due in enumerate((5.0, 3.0, math.inf, 4.0, 9.0), 1):
        queue.add(attempt(number, due))
    queue.remove_waiting(("r4", 1))
    assert queue.remove_overdue(2.9) == []
    assert queue.remove_overdue(5.0) == [("r2", 1), ("r1", 1)]
    assert queue.remove_overdue(100.0) == [("r5", 1)]
    assert queue.remove_all_waiting() == [("r3", 1)]
    assert queue.idle


def test_one_that_runs_is_not_overdue() -> None:
    queue = RunQueue(10)
    queue.add(attempt(1, 5.0))
    queue.start_next()
    assert queue.remove_overdue(6.0) == []


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=6),
    st.integers(1, 50),
)
def test_places_are_shared_and_all_used(counts: list[tuple[int, int]], capacity: int) -> None:
    owners = [Owner(RunQueue(100)) for _ in counts]
    for owner, (running, waiting) in zip(owners, counts, strict=True):
        for number in range(running + waiting):
            owner.queue.add(attempt(number))
            if number < running:
                owner.queue.start_next()
    before = sum(running for running, _ in counts)
    while (chosen := next_to_start(owners, capacity)) is not None:
        assert sum(len(one.queue.running) for one in owners) < capacity
        queued = [one for one in owners if one.queue.waiting]
        assert chosen is min(queued, key=lambda one: len(one.queue.running))
        chosen.queue.start_next()
    asked = sum(map(sum, counts))
    assert sum(len(one.queue.running) for one in owners) == max(before, min(capacity, asked))


def test_fair_shares() -> None:
    assert [fair_share(10, count) for count in (0, 1, 3, 20)] == [10, 10, 3, 1]
