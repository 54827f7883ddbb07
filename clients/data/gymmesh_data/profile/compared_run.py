"""A run as `compare` reads it: its tasks with the results of their rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymmesh_client import UserError
from gymmesh_data.profile.bounds import RewardRange, reward_range
from gymmesh_data.profile.report import ProfileOptions
from gymmesh_data.profile.totals import TaskTotals, totals_of

RunTasks = dict[tuple[str, str], TaskTotals]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run.

    Attributes:
        name: its path.
        tasks: all tasks with an outcome, by environment and id.
        judged: the tasks with a reward.
    """

    name: str
    tasks: RunTasks
    judged: RunTasks = field(init=False)

    def __post_init__(self) -> None:
        judged = {key: task for key, task in self.tasks.items() if task.judged}
        object.__setattr__(self, "judged", judged)


def read_runs(paths: Sequence[Path], options: ProfileOptions) -> list[ComparedRun]:
    """Read each run once.

    Raises:
        UserError: there is only one run, a file cannot be read, or a run has no reward.
    """
    if len(paths) < 2:
        raise UserError("compare needs at least two runs; for one run, use gym-cli profile")
    runs = []
    for path in paths:
        run = ComparedRun(str(path), totals_of([path], options.solved_at, options.fields).tasks)
        if not run.judged:
            raise UserError(f"{path}: no rollout has a reward, so there is nothing to compare")
        runs.append(run)
    return runs


def range_of(runs: Sequence[ComparedRun], options: ProfileOptions) -> RewardRange:
    """The range of rewards that bounds of these runs assume."""
    return reward_range(options.rewards, (task for run in runs for task in run.judged.values()))
