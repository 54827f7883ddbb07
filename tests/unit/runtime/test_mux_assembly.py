"""Unfinished messages are bounded: on a connection, and over all connections of a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.wire.mux.assembly import Assembly, AssemblyBudget
from gymmesh_runtime.wire.mux.calls import CallRefused, Received, Receiving
from gymmesh_runtime.wire.mux.frames import Begin, Chunk
from gymmesh_runtime.wire.mux.table import CallTable, TableLimits, Violation
from tests.unit.runtime.mux_frames import begin, give

Reason = errors_pb2.ErrorReason
LIMITS = TableLimits(calls=8, message_bytes=1000, assembly_bytes=5000, call_bytes=10)


def test_no_connection_holds_more_than_is_free() -> None:
    budget = AssemblyBudget(1000)
    ones = [Assembly(5000, budget) for _ in range(6)]
    held = []
    for one in ones:
        while one.take(1) is None:
            pass
        held.append(one.held)
    assert held == [500, 250, 125, 62, 31, 16]
    for one in ones:
        one.close()
    assert budget.used == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300), st.booleans()), max_size=60))
def test_the_sum_over_all_connections_is_bounded(
    steps: list[tuple[int, int, bool]],
) -> None:
    budget = AssemblyBudget(1000)
    ones = [Assembly(400, budget) for _ in range(10)]
    for place, size, closes in steps:
        if closes:
            ones[place].close()
        else:
            ones[place].take(size)
        assert budget.used == sum(one.held for one in ones) <= budget.total
        assert all(0 <= one.held <= 400 for one in ones)


def test_many_tables_share_a_budget_and_give_it_back() -> None:
    budget = AssemblyBudget(4000)
    tables = [CallTable(opener=False, limits=LIMITS, budget=budget) for _ in range(50)]
    refused = 0
    for table in tables:
        for number in (1, 3, 5):
            (event,) = give(table, begin(number, b"x" * 500, more=True))
            if isinstance(event, CallRefused):
                assert event.error.reason == Reason.ERROR_REASON_QUEUE_FULL
                assert event.error.metadata == {"queue": "mux", "limit": "4000"}
                assert event.error.retry_after_s
                refused += 1
        assert budget.used <= 4000
    assert 0 < refused < 150
    # A small message is no concern of the budget; nor is one that a connection ends.
    (event,) = give(tables[-1], begin(7, b"small"))
    assert isinstance(event, Received)
    for table in tables:
        table.close()
    assert budget.used == 0
    (event,) = give(
        CallTable(opener=False, limits=LIMITS, budget=budget), begin(1, b"x" * 500, more=True)
    )
    assert isinstance(event, Receiving)


@pytest.mark.parametrize("last", [True, False])
def test_a_message_that_ends_is_given_back(last: bool) -> None:
    budget = AssemblyBudget(4000)
    table = CallTable(opener=False, limits=LIMITS, budget=budget)
    give(table, begin(1, b"x" * 500, more=True))
    assert budget.used == 510
    if last:
        (event,) = give(table, Chunk(1, b"y" * 100, True))
        assert isinstance(event, Received)
        assert event.request == b"x" * 500 + b"y" * 100
    else:
        table.end(1)
    assert budget.used == 0


def test_empty_chunks_take_nothing() -> None:
    table = CallTable(opener=False, limits=LIMITS)
    give(table, begin(1, b"", more=True))
    for _ in range(10_000):
        assert give(table, Chunk(1, b"", False)) == []
    assert table._assembly.held == LIMITS.call_bytes


def test_calls_given_up_before_their_chunks_came_are_bounded() -> None:
    table = CallTable(opener=False, limits=LIMITS)
    for number in range(1, 2 * LIMITS.calls, 2):
        give(table, begin(number, b"x", more=True))
        table.end(number)  # at its deadline, say
    with pytest.raises(Violation, match="ended calls"):
        give(table, begin(99, b"x", more=True))
    assert table.incoming == 0


@pytest.mark.parametrize("more", [True, False])
def test_metadata_are_bounded(more: bool) -> None:
    table = CallTable(opener=False)
    large = {"key": "x" * 20_000}
    (event,) = give(table, Begin(1, "s/M", 500, large, b"q", more, 0))
    assert isinstance(event, CallRefused)
    assert event.error.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
    assert event.error.metadata == {
        "limit_bytes": "16384",
        "method": "s/M",
        "size_bytes": "20003",
    }
    assert "the metadata of the call of s/M has 20003 bytes" in event.error.message
    assert table.incoming == 0
    if more:
        assert give(table, Chunk(1, b"x", True)) == []
