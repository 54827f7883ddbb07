"""Intervals and tests by drawing, against closed forms and scipy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_data.profile.resampling import bootstrap, bootstrap_median, sign_flip

VALUES = [0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0, 0.125]


def _ones(values: list[float]) -> list[tuple[list[float], list[float]]]:
    return [(values, [1.0] * len(values))]


def test_the_interval_of_ones_and_zeros_is_the_binomial_one() -> None:
    # scipy 1.17.1: binom.ppf((0.025, 0.975), 10, 0.3) / 10
    values = [1.0] * 3 + [0.0] * 7
    (found,) = bootstrap(_ones(values), resamples=20000, seed=1)
    assert found == pytest.approx((0.0, 0.6))


def test_intervals_are_scipys() -> None:
    # scipy 1.17.1: stats.bootstrap((VALUES,), …, method="percentile", n_resamples=200000)
    (found,) = bootstrap(_ones(VALUES), resamples=50000, seed=1)
    assert found == pytest.approx((0.265625, 0.75), abs=0.02)
    median = bootstrap_median(VALUES, resamples=20000, seed=1)
    assert median == pytest.approx((0.125, 1.0), abs=1e-9)


def test_tasks_weigh_by_their_rollouts_and_those_without_any_do_not_count() -> None:
    columns = [([4.0, 0.0, 0.0], [4.0, 1.0, 0.0]), ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])]
    weighed, alone = bootstrap(columns, resamples=500, seed=0)
    assert weighed == pytest.approx((0.0, 1.0))
    assert alone is None
    assert bootstrap([([1.0], [1.0])], resamples=500, seed=0) == [None]
    assert bootstrap_median([1.0], resamples=500, seed=0) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.integers(0, 5), st.randoms())
def test_order_does_not_matter_and_bounds_hold(
    values: list[float], seed: int, shuffling: random.Random
) -> None:
    other = list(values)
    shuffling.shuffle(other)
    (found,) = bootstrap(_ones(values), resamples=200, seed=seed)
    assert bootstrap(_ones(other), resamples=200, seed=seed) == [found]
    assert found is not None
    assert min(values) - 1e-9 <= found[0] <= found[1] <= max(values) + 1e-9
    signs = sign_flip(values, resamples=200, seed=seed)
    assert sign_flip(other, resamples=200, seed=seed) == signs
    assert sign_flip([-one for one in values], resamples=200, seed=seed)[0] > 0


def test_all_signs_are_tried_where_there_are_few() -> None:
    # scipy 1.17.1: stats.permutation_test((d,), sum, permutation_type="samples"), exact
    differences = [0.5, -0.25, 0.125, 1.0, 0.75, -0.5, 0.25, 0.375]
    assert sign_flip(differences, resamples=1, seed=0) == (0.1796875, True)
    assert sign_flip([*differences, 0.0], resamples=1, seed=0) == (0.1796875, True)
    assert sign_flip([1.0] * 5, resamples=1, seed=0) == (2 / 32, True)
    assert sign_flip([0.0], resamples=1, seed=0) == (1.0, True)


def test_signs_are_drawn_where_there_are_many() -> None:
    # scipy 1.17.1, with 400,000 draws: 0.0914
    differences = [0.1 * one for one in range(-8, 14) if one]
    p, exact = sign_flip(differences, resamples=50000, seed=3)
    assert p == pytest.approx(0.0914, abs=0.006)
    assert not exact
    assert sign_flip([1.0] * 40, resamples=999, seed=0) == (1 / 1000, False)
