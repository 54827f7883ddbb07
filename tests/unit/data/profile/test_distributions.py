"""Counts of many numbers: exact where few differ, bounded where many do."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_data.profile.distributions import Distribution, TimeBin, TimeSeries


def _of(values: list[float]) -> Distribution:
    found = Distribution()
    for value in values:
        found.add(value)
    return found


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=60), st.floats(0, 1))
def test_quantiles_are_numpys(values: list[int], part: float) -> None:
    found = _of(list(map(float, values)))
    expected = np.quantile(values, part, method="averaged_inverted_cdf")
    rank = part * len(values)
    if abs(rank - round(rank)) > 1e-9 or rank == round(rank):
        assert found.quantile(part) == pytest.approx(float(expected))
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.deviation == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert sum(count for *_, count in found.bars()) == len(values)


def test_many_values_take_bounded_memory_and_stay_within_a_percent() -> None:
    values = [1.5 * number + 0.25 for number in range(50_000)]
    random.Random(1).shuffle(values)
    found = _of(values)
    assert not found.exact
    assert len(found.items()) <= 4096
    for part in (0.05, 0.5, 0.95):
        assert found.quantile(part) == pytest.approx(float(np.quantile(values, part)), rel=0.011)
    assert (found.least, found.greatest, found.count) == (min(values), max(values), 50_000)
    assert found.items() == _of(sorted(values)).items()
    assert found.mean == pytest.approx(statistics.fmean(values))


def test_nothing_has_no_figures() -> None:
    empty = Distribution()
    assert (empty.mean, empty.deviation, empty.quantile(0.5)) == (None, None, None)
    assert empty.to_dict() == {"count": 0}


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300), st.randoms())
def test_time_has_at_most_64_spans_whatever_the_order(
    times: list[int], shuffling: random.Random
) -> None:
    def series(some: list[int]) -> list[tuple[int, TimeBin]]:
        found = TimeSeries()
        for one in some:
            found.add(float(one), TimeBin(1, 1, 0.5, one))
        return list(found)

    found = series(times)
    other = list(times)
    shuffling.shuffle(other)
    assert series(other) == found
    assert len(found) <= 64
    assert sum(one.rollouts for _, one in found) == len(times)
    assert math.fsum(one.tokens for _, one in found) == sum(times)
