"""Bounds of a mean reward when some rollouts have no reward. Pure.

The reward of a rollout that failed, or that no verifier judged, is unknown. So the mean over all
rollouts lies between two means: with the lowest and with the highest possible reward for each
missing reward. See C. Manski, "Partial Identification of Probability Distributions"
(2003), chapter 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gymmesh_data.profile.totals import TaskTotals

RewardRange = tuple[float, float]


@dataclass(frozen=True, slots=True)
class RewardBounds:
    """The lowest and highest mean reward that missing rewards allow.

    Attributes:
        low, high: of the mean, or of a difference of means; equal when nothing is missing.
        missing: rollouts that failed or were not judged.
    """

    low: float
    high: float
    missing: int


def reward_range(asked: RewardRange, tasks: Iterable[TaskTotals]) -> RewardRange:
    """The range that the user passed, extended to the observed rewards."""
    low, high = asked
    for task in tasks:
        if task.judged:
            low, high = min(low, task.least), max(high, task.greatest)
    return low, high


def missing_of(task: TaskTotals) -> int:
    """A task's rollouts without a reward."""
    return task.failed + task.unjudged


def task_bounds(task: TaskTotals, rewards: RewardRange) -> RewardRange:
    """The lowest and highest mean reward of a task.

    Raises:
        ValueError: the task has no rollout.
    """
    missing = missing_of(task)
    count = task.judged + missing
    if not count:
        raise ValueError(f"task {task.task_id!r} has no rollout")
    low, high = (math.fsum((task.reward, missing * one)) / count for one in rewards)
    return low, high


def rollout_bounds(tasks: Sequence[TaskTotals], rewards: RewardRange) -> RewardBounds | None:
    """Bounds of the mean over all rollouts of some tasks; None without a rollout."""
    missing = sum(map(missing_of, tasks))
    count = missing + sum(task.judged for task in tasks)
    if not count:
        return None
    total = math.fsum(task.reward for task in tasks)
    low, high = ((total + missing * one) / count for one in rewards)
    return RewardBounds(low, high, missing)


def mean_bounds(tasks: Sequence[TaskTotals], rewards: RewardRange) -> RewardBounds | None:
    """Bounds of the mean of the tasks' mean rewards, each counted once; None without a task."""
    if not tasks:
        return None
    found = [task_bounds(task, rewards) for task in tasks]
    low = math.fsum(one for one, _ in found) / len(found)
    high = math.fsum(other for _, other in found) / len(found)
    return RewardBounds(low, high, sum(map(missing_of, tasks)))


def difference_bounds(
    pairs: Sequence[tuple[TaskTotals, TaskTotals]], rewards: RewardRange
) -> RewardBounds | None:
    """Bounds of the mean difference (second run minus first run), over tasks that both runs
    attempted.
    """
    if not pairs:
        return None
    before = mean_bounds([one for one, _ in pairs], rewards)
    after = mean_bounds([other for _, other in pairs], rewards)
    assert before is not None
    assert after is not None
    return RewardBounds(
        after.low - before.high, after.high - before.low, before.missing + after.missing
    )
