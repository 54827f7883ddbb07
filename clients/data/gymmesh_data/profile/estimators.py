"""Estimates from the repeats of one task, and the error of a mean over tasks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=65536)
def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` rollouts of a task solves it: 1 - C(n-c, k) / C(n, k).

    Unbiased; after M. Chen et al., "Evaluating Large Language Models Trained on Code",
    arXiv:2107.03374, section 2.1.

    Args:
        n: judged rollouts of the task.
        c: those among them that solved it.
        k: from 1 to n.

    Raises:
        ValueError: c is not from 0 to n, or k not from 1 to n.
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@lru_cache(maxsize=65536)
def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of `k` rollouts of a task solve it: C(c, k) / C(n, k).

    Unbiased; after S. Yao et al., "tau-bench", arXiv:2406.12045, section 2. Arguments and errors as
    `pass_at_k`.
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


@lru_cache(maxsize=65536)
def majority_at_k(answers: tuple[tuple[int, float], ...], k: int) -> float:
    """How often the most frequent answer of `k` rollouts of a task is right.

    The mean over all subsets of `k` rollouts. If several answers are most frequent, one of them is
    drawn at random.

    Args:
        answers: for each answer how many rollouts gave it, and how often it was right (0 to 1).
        k: from 1 to the number of rollouts.

    Raises:
        ValueError: k is not in its range.
    """
    total = sum(count for count, _ in answers)
    _check(total, 0, k)
    won = 0.0
    for place, (count, right) in enumerate(answers):
        if right:
            others = [other for at, (other, _) in enumerate(answers) if at != place]
            for votes in range(1, min(count, k) + 1):
                won += right * math.comb(count, votes) * _wins(others, k - votes, votes)
    return won / math.comb(total, k)


def _wins(others: Sequence[int], left: int, votes: int) -> float:
    """The ways to draw `left` rollouts with other answers so that none has more than `votes`; a
    tie of t + 1 answers counts 1 / (t + 1).
    """
    ways = {(0, 0): 1}
    for count in others:
        further: dict[tuple[int, int], int] = {}
        for (drawn, ties), known in ways.items():
            for one in range(min(count, votes, left - drawn) + 1):
                key = (drawn + one, ties + (one == votes))
                further[key] = further.get(key, 0) + known * math.comb(count, one)
        ways = further
    return math.fsum(number / (ties + 1) for (drawn, ties), number in ways.items() if drawn == left)


def ratio(sums: Sequence[float], weights: Sequence[float]) -> tuple[float, float] | None:
    """The mean over rollouts that are grouped by task, with its standard error.

    The mean is the sum of `sums` over that of `weights`. The error is clustered by task, because
    repeats of a task are similar: sqrt(T / (T-1) * sum_t (s_t - mean * w_t)^2) / sum w. With equal
    weights that is the standard deviation of the tasks' means over sqrt(T). See E. Miller, "Adding
    Error Bars to Evals", arXiv:2411.00640, section 2.2.

    Args:
        sums: for each task the sum of the averaged values.
        weights: for each task the number of its rollouts; tasks with 0 do not count.

    Returns:
        The mean and the error, which is NaN for a single task; None without tasks.
    """
    pairs = [(one, weight) for one, weight in zip(sums, weights, strict=True) if weight]
    if not pairs:
        return None
    whole = math.fsum(weight for _, weight in pairs)
    mean = math.fsum(one for one, _ in pairs) / whole
    tasks = len(pairs)
    if tasks == 1:
        return mean, math.nan
    spread = math.fsum((one - mean * weight) ** 2 for one, weight in pairs)
    return mean, math.sqrt(spread * tasks / (tasks - 1)) / whole


def mcnemar(gained: int, lost: int) -> float:
    """The two-sided p value of McNemar's exact test.

    2 * P(X <= min(gained, lost)) for X binomial with p = 1/2, at most 1.

    Args:
        gained: tasks solved by the second run alone.
        lost: tasks solved by the first run alone.
    """
    apart = gained + lost
    tail = sum(math.comb(apart, one) for one in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / (1 << apart)))


def holm(values: Sequence[float]) -> list[float]:
    """p values of several tests, corrected together after Holm (1979), in the same order."""
    corrected, worst = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda one: values[one])):
        worst = max(worst, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = worst
    return corrected


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}: c must be 0 to n, and k must be 1 to n")
