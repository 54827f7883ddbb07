"""The dispatcher's parts, each by itself: causes, gate, concurrency, pace, backlog."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch.backlog import Assignment, Backlog
from gymmesh_client.dispatch.causes import agent_is_away, cause_of
from gymmesh_client.dispatch.concurrency import Concurrency
from gymmesh_client.dispatch.gate import Gate
from gymmesh_client.dispatch.pace import Pace

Reason = errors_pb2.ErrorReason


@dataclass(frozen=True)
class Rollout:
    """One rollout of the tests."""

    group: str
    environment: str = "math"
    agent: str = "tool_loop"


@pytest.mark.parametrize(
    ("reason", "counts", "crowded"),
    [
        (Reason.ERROR_REASON_QUEUE_FULL, False, True),
        (Reason.ERROR_REASON_SESSION_LIMIT, False, True),
        (Reason.ERROR_REASON_MODEL_RATE_LIMITED, True, True),
        (Reason.ERROR_REASON_MODEL_TIMEOUT, True, False),
        (Reason.ERROR_REASON_ENVIRONMENT_FAULT, True, False),
        (9999, True, False),  # of a later contract
    ],
)
def test_what_a_cause_means(reason: int, counts: bool, crowded: bool) -> None:
    cause = cause_of(reason)
    assert (cause.counts, cause.crowded) == (counts, crowded)


@pytest.mark.parametrize(
    "away", [Reason.ERROR_REASON_SERVICE_NOT_FOUND, Reason.ERROR_REASON_PEER_UNAVAILABLE]
)
def test_what_an_agent_could_not_reach_costs_no_attempt(away: int) -> None:
    for boundary in (rollout_pb2.BOUNDARY_MODEL, rollout_pb2.BOUNDARY_RESOURCE):
        cause = cause_of(away, boundary)
        assert (cause.counts, cause.crowded) == (False, True)
    assert cause_of(away, rollout_pb2.BOUNDARY_AGENT).counts
    assert cause_of(Reason.ERROR_REASON_MUX_BROKEN, rollout_pb2.BOUNDARY_MODEL).counts


@given(
    st.sampled_from(Reason.values()),
    st.integers(1, 1000),
    st.none() | st.floats(0, 10_000),
)
def test_a_wait_doubles_heeds_who_asks_for_one_and_is_bounded(
    reason: int, times: int, asked: float | None
) -> None:
    cause = cause_of(reason)
    wait = cause.wait_s(times, asked)
    assert 0 <= wait <= 60
    assert wait >= min(60, asked or 0)
    assert cause.wait_s(times + 1, asked) >= wait


def test_an_agent_is_away_only_when_it_began_nothing() -> None:
    away, agent = Reason.ERROR_REASON_PEER_UNAVAILABLE, rollout_pb2.BOUNDARY_AGENT
    assert agent_is_away(away, agent, begun=False)
    assert not agent_is_away(away, agent, begun=True)
    assert not agent_is_away(away, rollout_pb2.BOUNDARY_RESOURCE, begun=False)
    assert not agent_is_away(Reason.ERROR_REASON_AGENT_FAULT, agent, begun=False)


def test_a_gate_closes_lets_one_probe_through_and_opens() -> None:
    gate = Gate(patience_s=100)
    assert gate.admits(0.0)
    for _ in range(50):  # those that were in flight together count once
        assert not gate.refused(0.0, None)
    assert not gate.admits(0.2)
    assert gate.wake_at() == 0.25
    assert gate.admits(0.25)
    gate.started()
    assert not gate.admits(0.3)
    assert gate.wake_at() is None
    assert not gate.refused(0.3, None)
    assert gate.wake_at() == 0.8  # half a second now
    gate.started()
    gate.abandoned()
    assert gate.admits(0.8)
    gate.passed()
    assert gate.admits(0.9)
    assert gate.wake_at() is None


def test_a_gate_heeds_retry_after_and_runs_out_of_patience() -> None:
    gate = Gate(patience_s=100)
    gate.refused(0.0, 7.0)
    assert not gate.admits(6.9)
    assert gate.admits(7.0)
    now, refusals = 7.0, 0
    while not gate.refused(now, None):
        now = gate.wake_at() or pytest.fail("a closed gate says when to ask")
        refusals += 1
    assert 100 < now < 120
    assert refusals < 20


def test_concurrency_shrinks_once_a_round_and_grows_back() -> None:
    concurrency = Concurrency(100)
    for _ in range(30):
        concurrency.crowded(10.0, 100)
    assert concurrency.limit == 70
    concurrency.crowded(11.5, 60)
    assert concurrency.limit == 42
    for _ in range(42):
        concurrency.fitted()
    assert concurrency.limit in (42, 43)
    for _ in range(100_000):
        concurrency.fitted()
    assert concurrency.limit == 100


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5), st.integers(0, 99))))
def test_concurrency_stays_within_its_bounds(steps: list[tuple[bool, float, int]]) -> None:
    concurrency, now = Concurrency(32), 0.0
    for crowded, pause, in_flight in steps:
        now += pause
        if crowded:
            concurrency.crowded(now, in_flight)
        else:
            concurrency.fitted()
        assert 1 <= concurrency.limit <= 32


def test_the_agents_target_bounds_it_and_tuning_starts_anew() -> None:
    concurrency = Concurrency(32, target=10)
    assert concurrency.limit == 10
    concurrency.aim(0)
    assert concurrency.limit == 1
    concurrency.aim(None)
    concurrency.crowded(0.0, 32)
    concurrency.tune(64)
    assert concurrency.limit == 64


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_pace_spaces_starts(per_s: float, pauses: list[float]) -> None:
    pace, now, starts = Pace(per_s), 0.0, []
    for pause in pauses:
        now += pause
        if pace.admits(now):
            pace.started(now)
            starts.append(now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(gap >= 1 / per_s - 1e-6 for gap in gaps)
    assert starts[0] == pauses[0]


def _source(*rollouts: Rollout) -> Iterator[tuple[Rollout, int]]:
    return iter([(one, 1) for one in rollouts])


def test_without_shares_the_order_of_the_tasks_stands() -> None:
    rollouts = [Rollout(str(n), environment="ab"[n % 2]) for n in range(20)]
    backlog = Backlog(_source(*rollouts), {})
    taken = [backlog.take(lambda _: True) for _ in range(20)]
    assert [one.work.group for one in taken if one] == [str(n) for n in range(20)]
    assert backlog.take(lambda _: True) is None
    assert backlog.empty


def test_shares_are_kept_whatever_the_order_of_the_tasks() -> None:
    rollouts = [Rollout(f"a{n}", "a") for n in range(300)] + [
        Rollout(f"b{n}", "b") for n in range(300)
    ]
    backlog = Backlog(_source(*rollouts), {"a": 1.0, "b": 3.0})
    first = Counter(
        one.work.environment for _ in range(200) if (one := backlog.take(lambda _: True))
    )
    assert first == {"a": 50, "b": 150}
    rest = Counter(
        one.work.environment for _ in range(400) if (one := backlog.take(lambda _: True))
    )
    assert rest == {"a": 250, "b": 150}
    assert backlog.empty is (backlog.take(lambda _: True) is None)


def test_a_closed_agent_does_not_hold_up_another() -> None:
    rollouts = [Rollout("a", agent="away"), Rollout("b"), Rollout("c", agent="away")]
    backlog = Backlog(_source(*rollouts), {})
    taken = backlog.take(lambda agent: agent != "away")
    assert taken is not None
    assert taken.work.group == "b"
    assert backlog.take(lambda agent: agent != "away") is None
    assert not backlog.empty
    again = backlog.take(lambda _: True)
    assert again is not None
    assert again.work.group == "a"
    backlog.put_back(again)
    assert backlog.take(lambda _: True) == again


def test_reading_ahead_is_bounded() -> None:
    read = 0

    def many() -> Iterator[tuple[Rollout, int]]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield Rollout(str(number), agent="away"), 1

    backlog = Backlog(many(), {})
    assert backlog.take(lambda _: False) is None
    assert read < 10_000
    assert backlog.take(lambda _: True) is not None
    assert read < 10_000


def test_a_dropped_group_is_not_taken_neither_what_is_read_later() -> None:
    rollouts = [Rollout("a"), Rollout("b"), Rollout("a"), Rollout("c")]
    backlog = Backlog(_source(*rollouts), {"math": 1.0})
    first = backlog.take(lambda _: True)
    assert first is not None
    assert backlog.drop_group("a") == 1
    backlog.put_back(first)
    left = [one.work.group for _ in range(3) if (one := backlog.take(lambda _: True))]
    assert left == ["b", "c"]


@given(
    st.lists(st.sampled_from("abcd"), max_size=30),
    st.lists(st.sampled_from(["take", "take", "take", "put back", "drop"]), max_size=50),
    st.sampled_from([{}, {"math": 1.0}]),
)
def test_where_all_are_admitted_nobody_need_be_asked(
    groups: list[str], steps: list[str], shares: dict[str, float]
) -> None:
    backlogs = [Backlog(_source(*map(Rollout, groups)), shares) for _ in range(2)]
    taken: list[list[Assignment[Rollout]]] = [[], []]
    for step in steps:
        for backlog, mine, admits in zip(backlogs, taken, (None, lambda _: True), strict=True):
            if step == "take" and (one := backlog.take(admits)):
                mine.append(one)
            elif step == "put back" and mine:
                backlog.put_back(mine.pop(0))
            elif step == "drop":
                backlog.drop_group("b")
        assert taken[0] == taken[1]
    assert backlogs[0].dropped() == backlogs[1].dropped()
    assert backlogs[0].waiting == backlogs[1].waiting
    assert backlogs[0].empty == backlogs[1].empty
