"""The dispatcher's parts, each by itself: causes, gate, concurrency, pace, backlog."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch.backlog import Assignment, Backlog
from gymmesh_client.dispatch.causes import (
    Ended,
    agent_is_away,
    cause_of,
    fault_of,
    is_unknown,
    service_is_away,
)
from gymmesh_client.dispatch.concurrency import Concurrency, Pace
from gymmesh_client.dispatch.faults import Faults, Streak
from gymmesh_client.dispatch.gate import Gate, ServiceGates

Reason = errors_pb2.ErrorReason


@dataclass(frozen=True)
class Rollout:
    """One rollout of the tests."""

    group: str
    environment: str = "math"
    agent: str = "tool_loop"


def ended(reason: int, boundary: int = rollout_pb2.BOUNDARY_MODEL, **more: Any) -> Ended:
    """A failure that may be retried."""
    return Ended(reason=reason, boundary=boundary, **{"retry_safe": True, "begun": True, **more})


@pytest.mark.parametrize(
    ("reason", "counts", "crowded"),
    [
        (Reason.ERROR_REASON_QUEUE_FULL, False, True),
        (Reason.ERROR_REASON_SESSION_LIMIT, False, True),
        (Reason.ERROR_REASON_MODEL_RATE_LIMITED, True, True),
        (Reason.ERROR_REASON_MODEL_TIMEOUT, True, False),
        (Reason.ERROR_REASON_MODEL_UNREACHABLE, False, False),
        (Reason.ERROR_REASON_MODEL_SERVER_ERROR, True, False),
        (Reason.ERROR_REASON_ENVIRONMENT_FAULT, True, False),
        (9999, True, False),  # of a later contract
    ],
)
def test_what_a_cause_means(reason: int, counts: bool, crowded: bool) -> None:
    cause = cause_of(ended(reason))
    assert (cause.counts, cause.crowded) == (counts, crowded)


@pytest.mark.parametrize(
    "reason",
    [
        Reason.ERROR_REASON_SERVICE_NOT_FOUND,
        Reason.ERROR_REASON_PEER_UNAVAILABLE,
        Reason.ERROR_REASON_MUX_BROKEN,
        Reason.ERROR_REASON_DRAINING,
    ],
)
def test_what_an_agent_could_not_reach_costs_no_attempt(reason: int) -> None:
    boundaries = rollout_pb2.Boundary.Value
    for name in ("MODEL", "TOOL", "RESOURCE", "VERIFIER"):
        lost = ended(reason, boundaries(f"BOUNDARY_{name}"))
        assert service_is_away(lost)
        assert not cause_of(lost).counts
    assert cause_of(ended(reason, rollout_pb2.BOUNDARY_AGENT)).counts


@pytest.mark.parametrize(
    ("cause", "away"), [("unreachable", True), ("killed", False), ("ended", False), ("", False)]
)
def test_a_sandbox_that_is_lost_is_not_a_sandbox_service_that_is_away(
    cause: str, away: bool
) -> None:
    lost = ended(
        Reason.ERROR_REASON_SANDBOX_LOST,
        rollout_pb2.BOUNDARY_SANDBOX,
        metadata={"sandbox_id": "", "cause": cause},
    )
    assert service_is_away(lost) is away
    assert cause_of(lost).counts is not away


@pytest.mark.parametrize(
    ("status", "away"), [("502", True), ("503", True), ("504", True), ("500", False), ("", False)]
)
def test_an_endpoint_behind_a_proxy_that_is_not_there_is_away(status: str, away: bool) -> None:
    failed = ended(
        Reason.ERROR_REASON_MODEL_SERVER_ERROR, metadata={"http_status": status} if status else {}
    )
    assert service_is_away(failed) is away
    assert cause_of(failed).counts is not away


@pytest.mark.parametrize(
    ("known", "unknown"),
    [({"known": "maths, code"}, True), ({"known": "math, code"}, False), ({}, False)],
)
def test_an_environment_is_unknown_when_the_mesh_says_what_it_knows(
    known: dict[str, str], unknown: bool
) -> None:
    failed = ended(
        Reason.ERROR_REASON_SERVICE_NOT_FOUND,
        rollout_pb2.BOUNDARY_RESOURCE,
        metadata={"name": "math", **known},
    )
    assert is_unknown(failed) is unknown


@given(
    st.sampled_from(Reason.values()),
    st.integers(1, 1000),
    st.none() | st.floats(0, 10_000),
)
def test_a_wait_doubles_heeds_who_asks_for_one_and_is_bounded(
    reason: int, times: int, asked: float | None
) -> None:
    cause = cause_of(ended(reason))
    wait = cause.wait_s(times, asked)
    assert 0 <= wait <= 60
    assert wait >= min(60, asked or 0)
    assert cause.wait_s(times + 1, asked) >= wait


def test_an_agent_is_away_only_when_it_began_nothing() -> None:
    away, agent = Reason.ERROR_REASON_PEER_UNAVAILABLE, rollout_pb2.BOUNDARY_AGENT
    assert agent_is_away(ended(away, agent, begun=False))
    assert not agent_is_away(ended(away, agent))
    assert not agent_is_away(ended(away, rollout_pb2.BOUNDARY_RESOURCE, begun=False))
    assert not agent_is_away(ended(Reason.ERROR_REASON_AGENT_FAULT, agent, begun=False))


def test_a_gate_closes_lets_one_probe_through_and_opens() -> None:
    gate = Gate(patience_s=100)
    assert gate.admits(0.0)
    for order in range(50):  # those that were in flight together count once
        gate.refused(0.0, order, None)
    assert not gate.admits(0.2)
    assert gate.wake_at() == (0.25, 100)
    assert gate.admits(0.25)
    gate.started(50)
    assert not gate.admits(0.3)
    assert gate.wake_at() == ()
    gate.refused(0.3, 50, None)
    assert gate.wake_at() == (0.8, 100)  # half a second now
    gate.started(51)
    gate.abandoned(7)  # another one
    assert not gate.admits(0.8)
    gate.abandoned(51)
    assert gate.admits(0.8)
    gate.passed()
    assert gate.admits(0.9)
    assert gate.wake_at() == ()


def test_a_gate_heeds_retry_after_and_runs_out_of_patience() -> None:
    gate = Gate(patience_s=100)
    gate.refused(0.0, 1, 7.0)
    assert not gate.admits(6.9)
    assert gate.admits(7.0)
    now, refusals = 7.0, 0
    while not gate.is_hopeless(now):
        gate.refused(now, refusals, None)
        now = min(gate.wake_at())
        refusals += 1
    assert now == 100
    assert refusals < 20


def test_patience_begins_when_an_agent_was_first_tried_in_vain() -> None:
    gate = Gate(patience_s=100)
    gate.refused(50.0, 1, None, away_s=30.0)
    assert gate.closed_since == 20.0
    assert gate.is_hopeless(120.0)


MODEL_AWAY = ended(
    Reason.ERROR_REASON_MODEL_UNREACHABLE, component="policy", metadata={"model": "policy"}
)
JUDGE_AWAY = ended(
    Reason.ERROR_REASON_MODEL_UNREACHABLE, component="math", metadata={"model": "judge"}
)
SESSION_AWAY = ended(Reason.ERROR_REASON_PEER_UNAVAILABLE, rollout_pb2.BOUNDARY_RESOURCE)
TOOL_AWAY = ended(Reason.ERROR_REASON_PEER_UNAVAILABLE, rollout_pb2.BOUNDARY_TOOL)
SANDBOXES_AWAY = ended(
    Reason.ERROR_REASON_SANDBOX_LOST,
    rollout_pb2.BOUNDARY_SANDBOX,
    metadata={"cause": "unreachable"},
)
VERIFIER_AWAY = ended(Reason.ERROR_REASON_PEER_UNAVAILABLE, rollout_pb2.BOUNDARY_VERIFIER)


@pytest.mark.parametrize(
    ("away", "name", "shown_by"),
    [
        (MODEL_AWAY, "model 'policy'", "model_call_completed"),
        (JUDGE_AWAY, "model 'judge'", None),
        (SESSION_AWAY, "environment 'math'", "started"),
        (TOOL_AWAY, "environment 'math'", "tool_call_completed"),
        (VERIFIER_AWAY, "environment 'math'", None),
        (SANDBOXES_AWAY, "the sandbox service of environment 'math'", "sandbox_opened"),
    ],
)
def test_a_service_is_there_again_when_its_own_part_of_a_probe_succeeds(
    away: Ended, name: str, shown_by: str | None
) -> None:
    route, gates = ("math", "tool_loop"), ServiceGates(100, 1.0)
    gate = gates.lost(route, 1, 0.0, away)
    assert gate.name == name
    gates.ended(route, 2)  # began before it went away: says nothing
    assert not gates.admits(route, 0.1)
    assert gates.admits(("code", "tool_loop"), 0.1)
    gate.started(3)
    kinds = "started", "model_call_completed", "tool_call_completed", "sandbox_opened", "verified"
    for kind in kinds:
        if kind == shown_by:
            break
        gates.event_came(route, 3, kind)
        assert gates.closed or kind == shown_by
    if shown_by is not None:
        gates.event_came(route, 2, shown_by)
        assert gates.closed, "not the probe"
        gates.event_came(route, 3, shown_by)
    else:
        gates.ended(route, 3)
    assert not gates.closed


def test_a_probe_that_times_out_leaves_a_gate_closed_for_the_next_one() -> None:
    route, gates = ("math", "tool_loop"), ServiceGates(100, 1.0)
    gate = gates.lost(route, 1, 0.0, MODEL_AWAY)
    gate.started(2)
    gates.ended(route, 2, Reason.ERROR_REASON_MODEL_TIMEOUT)
    assert gates.closed
    assert gates.admits(route, 1.0)
    gate.started(3)
    gates.ended(route, 3, Reason.ERROR_REASON_MODEL_ANSWER_INVALID)
    assert not gates.closed, "it answered"


def test_a_fault_is_named_by_where_the_code_failed_or_else_by_its_words() -> None:
    def fault(**more: Any) -> str:
        return fault_of(ended(Reason.ERROR_REASON_VERIFIER_FAULT, **more))

    at = {"exception": "KeyError", "at": "judge.py:17"}
    assert fault(metadata=at, message="a") == fault(metadata=at, message="b") != ""
    assert fault(metadata=at) != fault(metadata={**at, "at": "judge.py:18"})
    assert fault(message="a") != fault(message="b")
    assert fault_of(ended(Reason.ERROR_REASON_MODEL_TIMEOUT, message="a")) == ""


def test_a_fault_that_no_retry_mended_in_three_rollouts_is_not_retried() -> None:
    faults = Faults()
    for _ in range(3):
        assert not faults.comes_back("always")
        faults.came_back("always")
    assert faults.comes_back("always")
    faults.came_back("now and then")
    faults.mended("now and then")
    for _ in range(9):
        faults.came_back("now and then")
    assert not faults.comes_back("now and then")
    for number in range(2000):  # what is remembered is bounded
        faults.came_back(str(number))
    assert not faults.comes_back("always")


def test_a_streak_is_of_one_kind_and_ends_with_a_success() -> None:
    streak = Streak(3)
    refused = [streak.failed(1, 1, mendable=False) for _ in range(2)]
    assert refused == [False, False]
    assert not streak.failed(1, 2, mendable=False), "another kind"
    assert not streak.failed(1, 1, mendable=False)
    assert not streak.failed(1, 1, mendable=True), "which may be mended"
    assert [streak.failed(1, 1, mendable=False) for _ in range(3)] == [False, False, True]
    streak.broken()
    assert [streak.failed(1, 1, mendable=False) for _ in range(3)] == [False, False, True]
    never = Streak(0)
    assert not any(never.failed(1, 1, mendable=False) for _ in range(100))


def test_a_width_shrinks_by_what_was_refused() -> None:
    width = Concurrency(100)
    for refused in range(30):
        width.crowded(10.0, 100 - refused)
    assert width.limit == 70
    for refused in range(5):
        width.crowded(12.0, 70 - refused)
    assert width.limit == 65


def rounds_until(width: Concurrency, aim: int) -> int:
    """How many rounds of rollouts that all fit it takes until the width is this."""
    rounds = 0
    while width.limit < aim:
        for _ in range(width.limit):
            width.fitted()
        rounds += 1
        assert rounds < 1000
    return rounds


@pytest.mark.parametrize("asked", [8, 64, 1024, 16384])
def test_after_an_outage_the_width_is_back_in_a_few_rounds(asked: int) -> None:
    width = Concurrency(asked)
    for refused in range(asked):
        width.crowded(10.0 + refused / 1e6, asked - refused)
    assert width.limit == 1
    assert rounds_until(width, asked) <= asked.bit_length()


def test_where_only_some_are_refused_the_width_is_back_in_a_few_rounds_too() -> None:
    width = Concurrency(64)
    for refused in range(40):
        width.crowded(10.0, 64 - refused)
    assert width.limit == 24
    assert rounds_until(width, 44) == 1
    assert rounds_until(width, 64) <= 6


def test_a_width_settles_at_what_there_is_room_for() -> None:
    """A mesh that takes 24 of 64, in a virtual time in which each rollout takes about 5 s."""
    rng, room, width, now = random.Random(1), 24, Concurrency(64), 0.0
    ends: list[float] = []
    refused = started = 0
    used: list[int] = []
    while now < 1000.0:
        while ends and ends[0] <= now:
            ends.pop(0)
            width.fitted()
        while len(ends) < width.limit:
            started += 1
            if len(ends) >= room:
                refused += 1
                width.crowded(now, len(ends) + 1)
            else:
                ends.append(now + rng.uniform(4.0, 6.0))
                ends.sort()
        used.append(len(ends))
        now += 0.1
    assert refused < 0.2 * started
    assert sum(used) / len(used) > 0.95 * room


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
    taken = backlog.take(lambda route: route[1] != "away")
    assert taken is not None
    assert taken.work.group == "b"
    assert backlog.take(lambda route: route[1] != "away") is None
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
