"""The attempts of a stream, and whose turn it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_agent.collect.roster import (
    Entrance,
    Roster,
    Whereabouts,
    fair_share,
    whose_turn,
)


@dataclass(frozen=True)
class Start:
    key: tuple[str, int]
    due: float


def start(number: int, due: float = math.inf) -> Start:
    return Start((f"r{number}", 1), due)


@dataclass
class Stream:
    roster: Roster[Start]


def test_starts_wait_in_order_and_the_queue_is_bounded() -> None:
    roster = Roster[Start](max_waiting=2)
    assert [roster.enter(start(number)) for number in (1, 2, 3)] == [
        Entrance.WAITS,
        Entrance.WAITS,
        Entrance.FULL,
    ]
    first = roster.next()
    assert first is not None
    assert first.key == ("r1", 1)
    assert (len(roster.waiting), len(roster.running)) == (1, 1)
    assert roster.enter(start(3)) is Entrance.WAITS


def test_a_start_that_comes_again_is_known_until_its_end_is_stored() -> None:
    roster = Roster[Start](10)
    roster.enter(start(1))
    assert roster.enter(start(1)) is Entrance.KNOWN
    roster.next()
    assert roster.enter(start(1)) is Entrance.KNOWN
    roster.told(("r1", 1))
    roster.over(("r1", 1))
    assert roster.idle
    assert roster.enter(start(1)) is Entrance.KNOWN
    roster.forget([("r1", 1)])
    assert roster.enter(start(1)) is Entrance.WAITS


def test_an_end_that_is_stored_before_the_attempt_is_over_leaves_nothing_behind() -> None:
    roster = Roster[Start](10)
    roster.enter(start(1))
    roster.next()
    roster.told(("r1", 1))
    roster.forget([("r1", 1)])
    roster.over(("r1", 1))
    assert roster.enter(start(1)) is Entrance.WAITS


def test_cancelling() -> None:
    roster = Roster[Start](10)
    roster.enter(start(1))
    roster.enter(start(2))
    roster.next()
    assert roster.cancel(("r1", 1)) is Whereabouts.RUNS
    assert roster.cancel(("r2", 1)) is Whereabouts.WAITED
    assert roster.cancel(("r2", 1)) is Whereabouts.NOWHERE
    assert roster.next() is None
    assert list(roster.running) == [("r1", 1)]


def test_those_whose_time_is_over_do_not_start() -> None:
    roster = Roster[Start](10)
    for number, due in enumerate((5.0, 3.0, math.inf, 4.0, 9.0), 1):
        roster.enter(start(number, due))
    roster.cancel(("r4", 1))
    assert roster.overdue(2.9) == []
    assert roster.overdue(5.0) == [("r2", 1), ("r1", 1)]
    assert roster.overdue(100.0) == [("r5", 1)]
    assert roster.clear_waiting() == [("r3", 1)]
    assert roster.idle


def test_one_that_runs_is_not_overdue() -> None:
    roster = Roster[Start](10)
    roster.enter(start(1, 5.0))
    roster.next()
    assert roster.overdue(6.0) == []


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 20))
def test_places_are_shared_and_all_used(asked: list[int], capacity: int) -> None:
    streams = [Stream(Roster(100)) for _ in asked]
    for stream, count in zip(streams, asked, strict=True):
        for number in range(count):
            stream.roster.enter(start(number))
    while (turn := whose_turn(streams, capacity)) is not None:
        stream, count = turn
        for _ in range(count):
            if stream.roster.next() is None:
                break
    running = [len(one.roster.running) for one in streams]
    assert sum(running) == min(capacity, sum(asked))
    for one in streams:
        # Whoever still waits has no less than anyone else, but for one place.
        if one.roster.waiting:
            assert len(one.roster.running) >= max(running) - 1


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), min_size=1, max_size=6),
    st.integers(1, 50),
)
def test_turns_in_a_row_are_the_turns_one_by_one(
    counts: list[tuple[int, int]], capacity: int
) -> None:
    streams = [Stream(Roster(100)) for _ in counts]
    for stream, (running, waiting) in zip(streams, counts, strict=True):
        for number in range(running + waiting):
            stream.roster.enter(start(number))
            if number < running:
                stream.roster.next()
    while (turn := whose_turn(streams, capacity)) is not None:
        stream, count = turn
        assert count >= 1
        for _ in range(count):
            if not stream.roster.waiting:
                break
            assert sum(len(one.roster.running) for one in streams) < capacity
            queued = [one for one in streams if one.roster.waiting]
            assert stream is min(queued, key=lambda one: len(one.roster.running))
            stream.roster.next()
    total = sum(len(one.roster.running) for one in streams)
    assert total >= capacity or not any(one.roster.waiting for one in streams)


def test_fair_shares() -> None:
    assert [fair_share(10, count) for count in (0, 1, 3, 20)] == [10, 10, 3, 1]
