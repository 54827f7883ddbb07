"""Which agent instance runs the next attempt."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client.collect_stream.pool import AgentInUse, least_busy
from gymmesh_client.collect_stream.stream import ASSUMED_CAPACITY

CALLS = st.integers(0, 3)
BROKE = st.sampled_from([None, "long ago", "now"])


@given(st.lists(st.tuples(CALLS, st.integers(0, 5), BROKE), min_size=1, max_size=6))
def test_the_least_busy_is_chosen_and_one_that_broke_only_when_all_did(
    given_ones: list[tuple[int, int, str | None]],
) -> None:
    instances = [AgentInUse(None, "") for _ in given_ones]
    now = time.monotonic()
    for one, (calls, turn, broke) in zip(instances, given_ones, strict=True):
        one.calls, one.chosen = calls, turn
        one.broke_at = {None: None, "long ago": now - 10, "now": now}[broke]
    ranks = [(broke == "now", calls / ASSUMED_CAPACITY, turn) for calls, turn, broke in given_ones]
    assert instances.index(least_busy(instances)) == ranks.index(min(ranks))
