"""Intervals and tests by drawing, against closed forms and scipy."""

from __future__ import annotations

import itertools
import math
import random
from operator import mul

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


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 1 / 3, -1 / 3, 0.1, -0.3]),
        max_size=9,
    )
)
def test_trying_all_signs_is_brute_force(differences: list[float]) -> None:
    far = abs(math.fsum(differences)) - 1e-9
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    beyond = [abs(math.fsum(map(mul, one, differences))) >= far for one in signs]
    p, exact = sign_flip(differences, resamples=1, seed=0)
    assert exact
    assert p == pytest.approx(sum(beyond) / len(signs), abs=1e-12)


def test_differences_of_a_size_are_flipped_together() -> None:
    # scipy 1.17.1: stats.permutation_test over all 2^20 signs
    differences = [0.5] * 6 + [-0.25] * 5 + [0.25] * 4 + [-0.5] * 2 + [0.75] * 2 + [-1.0]
    assert sign_flip(differences, resamples=1, seed=0) == (0.36385345458984375, True)
    # scipy 1.17.1: binomtest(30, 40).pvalue, which it is for differences of one size
    p, exact = sign_flip([1.0] * 30 + [-1.0] * 10, resamples=1, seed=0)
    assert p == pytest.approx(0.0022214337732293643, rel=1e-12)
    assert exact
    assert sign_flip([1.0] * 40, resamples=1, seed=0) == (2 / 2**40, True)


def test_a_benchmark_of_many_tasks_is_still_exact() -> None:
    differences = [(place % 9 - 4) / 4 + 0.25 * (place % 7 == 0) for place in range(700)]
    p, exact = sign_flip(differences, resamples=1, seed=0)
    assert exact
    drawn = random.Random(5)
    far = abs(math.fsum(differences)) - 1e-9
    rounds = 2000
    beyond = sum(
        abs(math.fsum(one if drawn.random() < 0.5 else -one for one in differences)) >= far
        for _ in range(rounds)
    )
    assert p == pytest.approx(beyond / rounds, abs=5 * math.sqrt(p * (1 - p) / rounds))
    assert sign_flip([1.0] * 3000, resamples=1, seed=0) == (math.ulp(0.0), True)


def test_signs_are_drawn_where_there_are_many() -> None:
    # scipy 1.17.1, with 400,000 draws: 0.0914 and 0.1133
    whole = [0.1 * one for one in range(-8, 14) if one]
    p, exact = sign_flip(whole, resamples=50000, seed=3)
    assert p == pytest.approx(0.0914, abs=0.0025)
    assert exact
    odd = [0.1 * one + 0.00317 * abs(one) ** 2.5 - 1.35 for one in range(-8, 22) if one]
    p, exact = sign_flip(odd, resamples=50000, seed=3)
    assert p == pytest.approx(0.1133, abs=0.006)
    assert not exact
    apart = [1 + one**0.5 / 7 for one in range(40)]
    assert sign_flip(apart, resamples=999, seed=0) == (1 / 1000, False)
