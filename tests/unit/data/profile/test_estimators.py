"""pass@k and the like against every subset, and tests against closed forms and scipy."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client.summary import pass_at_k as pass_at_k_of_a_summary
from gymmesh_data.profile.estimators import (
    holm,
    majority_at_k,
    mcnemar,
    pass_at_k,
    pass_hat_k,
    ratio,
)

NKC = [(n, k, c) for n in range(1, 8) for k in range(1, n + 1) for c in range(n + 1)]


@pytest.mark.parametrize(("n", "k", "c"), NKC)
def test_pass_at_k_is_the_mean_over_all_subsets(n: int, k: int, c: int) -> None:
    subsets = list(combinations([1] * c + [0] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(statistics.fmean(map(max, subsets)))
    assert pass_hat_k(n, c, k) == pytest.approx(statistics.fmean(map(min, subsets)))
    assert pass_at_k(n, c, k) == pass_at_k_of_a_summary([(n, c)], k)


@given(st.data())
def test_pass_at_k_rises_with_k_and_pass_hat_k_falls(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 60))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n - 1))
    assert 0 <= pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1) <= 1
    assert 1 >= pass_hat_k(n, c, k) >= pass_hat_k(n, c, k + 1) >= 0
    assert pass_hat_k(n, c, k) <= c / n + 1e-12
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_what_has_no_estimate_is_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be 0 to"):
        pass_at_k(n, c, k)


def _vote(drawn: tuple[int, ...], right: list[float]) -> float:
    counts = Counter(drawn)
    most = max(counts.values())
    first = [answer for answer, count in counts.items() if count == most]
    return statistics.fmean(right[answer] for answer in first)


@given(st.data())
def test_majority_at_k_is_the_mean_vote_over_all_subsets(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    right = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(counts), max_size=len(counts))
    )
    given_answers = [answer for answer, count in enumerate(counts) for _ in range(count)]
    k = data.draw(st.integers(1, len(given_answers)))
    votes = [_vote(drawn, right) for drawn in combinations(given_answers, k)]
    found = majority_at_k(tuple(zip(counts, right, strict=True)), k)
    assert found == pytest.approx(statistics.fmean(votes))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.integers(1, 6))
def test_the_error_of_equal_groups_is_that_of_their_means(means: list[float], n: int) -> None:
    told = ratio([mean * n for mean in means], [float(n)] * len(means))
    assert told is not None
    assert told[0] == pytest.approx(statistics.fmean(means), abs=1e-9)
    error = statistics.stdev(means) / math.sqrt(len(means))
    assert told[1] == pytest.approx(error, rel=1e-6, abs=1e-9)


def test_tasks_without_a_weight_do_not_count_and_one_task_has_no_error() -> None:
    assert ratio([0.0], [0.0]) is None
    assert ratio([1.0, 0.0, 3.0], [2.0, 0.0, 2.0]) == ratio([1.0, 3.0], [2.0, 2.0])
    alone = ratio([1.0], [2.0])
    assert alone is not None
    assert alone[0] == 0.5
    assert math.isnan(alone[1])


# scipy 1.17.1: scipy.stats.binomtest(min(b, c), b + c).pvalue
@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(8, 2, 0.109375), (0, 5, 0.0625), (10, 10, 1.0), (25, 12, 0.04703102743951604)],
)
def test_mcnemar_is_scipys_binomial_test(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p)
    assert mcnemar(lost, gained) == mcnemar(gained, lost)
    assert mcnemar(0, 0) == 1.0


def test_holm_corrects_in_steps() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
