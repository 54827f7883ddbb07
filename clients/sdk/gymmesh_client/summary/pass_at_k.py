"""pass@k: the chance that one of k rollouts of a task succeeds. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

SOLVED: Final = 1.0
"""A rollout counts as a success for pass@k when its reward is at least this."""


def pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> float | None:
    """The unbiased estimate of the probability that at least one of `k` rollouts succeeds.

    The mean over tasks of 1 - C(n-c, k) / C(n, k), after M. Chen et al., "Evaluating Large
    Language Models Trained on Code", arXiv:2107.03374, section 2.1.

    Args:
        counts: for each task, n verified rollouts and c successes among them. Tasks with fewer
            than `k` verified rollouts are skipped, because the estimate has no value for them.
        k: at least 1.

    Returns:
        A number from 0 to 1; None if no task has `k` verified rollouts.
    """
    if k < 1:
        raise ValueError("k must be at least 1")
    chances = [1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in counts if n >= k]
    return math.fsum(chances) / len(chances) if chances else None


def pass_at_each(counts: Collection[tuple[int, int]], repeats: int) -> dict[int, float]:
    """pass@k for k = 1, 2, 4 … and `repeats`, for each k with an estimate; `counts` as in
    `pass_at_k`.
    """
    chances = {k: pass_at_k(counts, k) for k in _each_k(repeats)}
    return {k: chance for k, chance in chances.items() if chance is not None}


def tasks_at_each(counts: Collection[tuple[int, int]], repeats: int) -> dict[int, int]:
    """For each k of `pass_at_each`, the number of tasks from which pass@k is estimated."""
    found = {k: sum(n >= k for n, _ in counts) for k in _each_k(repeats)}
    return {k: tasks for k, tasks in found.items() if tasks}


def _each_k(repeats: int) -> list[int]:
    powers = [2**power for power in range(repeats.bit_length()) if 2**power <= repeats]
    return sorted({*powers, repeats})
