"""Two or more runs of the same tasks: the difference, and whether the difference could be chance.

Runs are paired by task (environment and id): `compare` compares the mean reward of each task that
was judged in both runs. So the spread between easy and hard tasks does not hide the difference
between the runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gymmesh_client import UserError
from gymmesh_data.profile import resampling
from gymmesh_data.profile.bounds import RewardBounds, RewardRange, difference_bounds
from gymmesh_data.profile.compared_run import (
    ComparedRun,
    RunTasks,
    other_verdicts,
    range_of,
    read_runs,
)
from gymmesh_data.profile.estimators import holm, mcnemar, pass_at_k
from gymmesh_data.profile.report import Figure, ProfileOptions, figures_of, powers
from gymmesh_data.profile.totals import TaskTotals


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task's mean reward in both runs."""

    environment: str
    task_id: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """The value after minus the value before."""
        return round(self.after - self.before, 12)


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's exact test: tasks that only one run solved, and the p value."""

    gained: int
    lost: int
    p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against the first one.

    Attributes:
        only_before, only_after: tasks that only one run judged; they are not counted.
        other_prompts: tasks that are paired although their prompts differ, because two task files
            may use one id for different tasks.
        other_verdicts: environments whose verdicts have other versions in the other run, each as a
            clause.
        difference: of the tasks' mean rewards, after minus before.
        pass_at: differences of pass@k, by k, over tasks with k judged rollouts in both runs.
        p: the p value of the sign-flip test; exact: whether all signs were tried; corrected: p
            after Holm's correction, if there are several comparisons.
        mcnemar: None where a task was judged more than once, or rewards are not 0 or 1.
        changes: every task, the largest difference first.
        bounds: of the difference over the tasks that both runs attempted, when rollouts have no
            reward; None when none is missing.
    """

    before: str
    after: str
    only_before: int
    only_after: int
    other_prompts: int
    other_verdicts: list[str]
    mean_before: float
    mean_after: float
    difference: Figure
    pass_at: dict[int, Figure]
    p: float
    exact: bool
    corrected: float
    mcnemar: McNemar | None
    changes: list[TaskChange]
    bounds: RewardBounds | None

    @property
    def wins(self) -> int:
        """Tasks that the second run does better."""
        return sum(one.difference > 0 for one in self.changes)

    @property
    def losses(self) -> int:
        """Tasks that the second run does worse."""
        return sum(one.difference < 0 for one in self.changes)

    def to_dict(self, most: int) -> dict[str, Any]:
        """For JSON, with at most this many of the tasks that changed most; docs/how-to/profile.md
        has the keys.
        """
        return {
            "before": self.before,
            "after": self.after,
            "tasks": len(self.changes),
            "only_before": self.only_before,
            "only_after": self.only_after,
            "other_prompts": self.other_prompts,
            "other_verdicts": self.other_verdicts,
            "mean_before": self.mean_before,
            "mean_after": self.mean_after,
            "difference": asdict(self.difference),
            "difference_bounds": self.bounds and asdict(self.bounds),
            "pass_at": {str(k): asdict(figure) for k, figure in self.pass_at.items()},
            "sign_flip": {"p": self.p, "exact": self.exact, "corrected": self.corrected},
            "mcnemar": self.mcnemar and asdict(self.mcnemar),
            "wins": self.wins,
            "losses": self.losses,
            "ties": len(self.changes) - self.wins - self.losses,
            "changed_most": [
                asdict(one) | {"difference": one.difference}
                for one in self.changes[:most]
                if one.difference
            ],
        }


def compare(paths: Sequence[Path], options: ProfileOptions | None = None) -> list[Comparison]:
    """Compare each run with the first.

    Raises:
        UserError: there is one run only, a file cannot be read, or two runs share no judged task.
    """
    options = options or ProfileOptions()
    return compare_runs(read_runs(paths, options), options)


def compare_runs(runs: Sequence[ComparedRun], options: ProfileOptions) -> list[Comparison]:
    """Compare each run with the first, as `compare` does.

    Raises:
        UserError: two runs share no judged task.
    """
    rewards = range_of(runs, options)
    found = [_against(runs[0], run, rewards, options) for run in runs[1:]]
    corrected = holm([one.p for one in found])
    return [replace(one, corrected=p) for one, p in zip(found, corrected, strict=True)]


def _against(
    before: ComparedRun, after: ComparedRun, rewards: RewardRange, options: ProfileOptions
) -> Comparison:
    first, second = before.judged, after.judged
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise UserError(_no_overlap(before.name, first, after.name, second))
    pairs = [(first[key], second[key]) for key in shared]
    changes = [
        TaskChange(*key, one.mean or 0.0, other.mean or 0.0)
        for key, (one, other) in zip(shared, pairs, strict=True)
    ]
    differences = [one.difference for one in changes]
    difference, pass_at = _figures(pairs, differences, options)
    p, exact = resampling.sign_flip(
        differences, resamples=max(1, options.resamples), seed=options.seed
    )
    return Comparison(
        before.name,
        after.name,
        len(first) - len(shared),
        len(second) - len(shared),
        sum(one.mixed or other.mixed or one.prompt != other.prompt for one, other in pairs),
        list(other_verdicts(before, after)),
        math.fsum(one.before for one in changes) / len(changes),
        math.fsum(one.after for one in changes) / len(changes),
        difference,
        pass_at,
        p,
        exact,
        p,
        _mcnemar(pairs),
        sorted(changes, key=lambda one: (-abs(one.difference), one.environment, one.task_id)),
        _bounds(before, after, rewards),
    )


def _bounds(before: ComparedRun, after: ComparedRun, rewards: RewardRange) -> RewardBounds | None:
    shared = before.tasks.keys() & after.tasks.keys()
    found = difference_bounds([(before.tasks[key], after.tasks[key]) for key in shared], rewards)
    return found if found is not None and found.missing else None


def _figures(
    pairs: list[tuple[TaskTotals, TaskTotals]], differences: list[float], options: ProfileOptions
) -> tuple[Figure, dict[int, Figure]]:
    columns = [(differences, [1.0] * len(differences))]
    ks = powers(max(min(one.judged, other.judged) for one, other in pairs))
    for k in ks:
        sums, weights = [0.0] * len(pairs), [0.0] * len(pairs)
        for place, (one, other) in enumerate(pairs):
            if one.judged >= k and other.judged >= k:
                after = pass_at_k(other.judged, other.solved, k)
                sums[place] = after - pass_at_k(one.judged, one.solved, k)
                weights[place] = 1.0
        columns.append((sums, weights))
    difference, *figures = figures_of(columns, options)
    assert difference is not None  # every weight is 1
    return difference, {k: one for k, one in zip(ks, figures, strict=True) if one is not None}


def _mcnemar(pairs: list[tuple[TaskTotals, TaskTotals]]) -> McNemar | None:
    both = [task for pair in pairs for task in pair]
    if any(task.judged > 1 or task.reward not in (0.0, 1.0) for task in both):
        return None
    gained = sum(other.reward > one.reward for one, other in pairs)
    lost = sum(other.reward < one.reward for one, other in pairs)
    return McNemar(gained, lost, mcnemar(gained, lost))


def _no_overlap(before: str, first: RunTasks, after: str, second: RunTasks) -> str:
    def told(tasks: RunTasks) -> str:
        environment, task_id = next(iter(tasks))
        return (
            f"scored tasks: {len(tasks)}, such as {task_id!r} of environment "
            f"{environment or '(none)'!r}"
        )

    return (
        f"{before} and {after} have no scored task in common ({before}: {told(first)}; "
        f"{after}: {told(second)}). "
        "Compare runs of the same task file"
    )
