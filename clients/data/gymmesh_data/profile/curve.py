"""Several checkpoints on the same tasks: the mean reward of each run.

A point is the mean over the tasks that all runs judged, so that a run is not better because it
skipped hard tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gymmesh_client import UserError
from gymmesh_data.profile.bounds import RewardBounds, RewardRange, mean_bounds, missing_of
from gymmesh_data.profile.compared_run import ComparedRun, range_of
from gymmesh_data.profile.estimators import pass_at_k
from gymmesh_data.profile.report import Figure, ProfileOptions, figures_of
from gymmesh_data.profile.totals import TaskTotals


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One run.

    Attributes:
        mean: of the tasks' mean rewards, over the tasks that all runs judged.
        pass_at_1: over the same tasks.
        bounds: of the mean over the tasks that all runs attempted, when rollouts of this run
            have no reward; None when none is missing.
        missing: the run's rollouts without a reward, of all its tasks.
    """

    run: str
    mean: Figure
    pass_at_1: Figure
    bounds: RewardBounds | None
    missing: int


@dataclass(frozen=True, slots=True)
class Curve:
    """Runs in the given order.

    Attributes:
        tasks: how many tasks all runs judged; a mean is over these.
        attempted: how many tasks all runs attempted; bounds are over these.
        rewards: the range of rewards that bounds assume.
    """

    points: tuple[CurvePoint, ...]
    tasks: int
    attempted: int
    rewards: RewardRange

    def to_dict(self) -> dict[str, Any]:
        """For JSON; docs/how-to/profile.md has the keys."""
        return asdict(self) | {"points": [asdict(one) for one in self.points]}


def curve_of(runs: Sequence[ComparedRun], options: ProfileOptions) -> Curve:
    """The curve of some runs.

    Raises:
        UserError: no task was judged in all runs.
    """
    judged = _shared(runs, judged=True)
    if not judged:
        raise UserError(
            f"no task was judged in all {len(runs)} runs; compare runs of the same task file"
        )
    attempted = _shared(runs, judged=False)
    rewards = range_of(runs, options)
    points = tuple(_point(run, judged, attempted, rewards, options) for run in runs)
    return Curve(points, len(judged), len(attempted), rewards)


def _shared(runs: Sequence[ComparedRun], *, judged: bool) -> list[tuple[str, str]]:
    keys = [set(run.judged if judged else run.tasks) for run in runs]
    return sorted(set.intersection(*keys))


def _point(
    run: ComparedRun,
    judged: list[tuple[str, str]],
    attempted: list[tuple[str, str]],
    rewards: RewardRange,
    options: ProfileOptions,
) -> CurvePoint:
    tasks = [run.tasks[key] for key in judged]
    ones = [1.0] * len(tasks)
    columns = [([one.mean or 0.0 for one in tasks], ones), ([_solved(one) for one in tasks], ones)]
    mean, solved = figures_of(columns, options)
    assert mean is not None  # every weight is 1
    assert solved is not None
    bounds = mean_bounds([run.tasks[key] for key in attempted], rewards)
    missing = sum(map(missing_of, run.tasks.values()))
    return CurvePoint(
        run.name, mean, solved, bounds if bounds is not None and bounds.missing else None, missing
    )


def _solved(task: TaskTotals) -> float:
    return pass_at_k(task.judged, task.solved, 1)
