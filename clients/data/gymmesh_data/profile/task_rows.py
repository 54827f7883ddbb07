"""The rows of profiled tasks, for `gym-cli collect`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gymmesh_data.profile.totals import TaskTotals
from gymmesh_data.rollout import Json
from gymmesh_data.sources import read_rollouts
from gymmesh_data.tasks import task_of


def task_rows(paths: Sequence[Path], tasks: Iterable[TaskTotals]) -> Iterator[Json]:
    """The rows of these tasks, rebuilt from their first rollouts, each with its `rates`. Reads the
    rollouts again, as only a whole profile says which tasks are wanted. Raises UserError.
    """
    wanted = {(task.environment, task.task_id): task for task in tasks}
    for rollout in read_rollouts(paths):
        if not wanted:
            return
        task = wanted.pop((rollout.environment, rollout.task_id), None)
        if task is not None:
            yield task_of(rollout) | {
                "rates": {
                    "pass_rate": task.pass_rate,
                    "rollouts": task.judged,
                    "solved": task.solved,
                    "mean_reward": task.mean,
                }
            }
