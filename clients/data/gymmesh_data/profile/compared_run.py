"""A run as `compare` reads it: its tasks with the results of their rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        verdicts: rewards by judge (see `judge_of`) and by the judge's version.
        judged: the tasks with a reward.
    """

    name: str
    tasks: RunTasks
    verdicts: Mapping[str, Mapping[str, int]]
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
        totals = totals_of([path], options.solved_at, options.fields)
        run = ComparedRun(str(path), totals.tasks, totals.verdicts)
        if not run.judged:
            raise UserError(f"{path}: no rollout has a reward, so there is nothing to compare")
        runs.append(run)
    return runs


def other_verdicts(before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """The environments of both runs whose judges or judges' versions differ, each as a clause."""
    was, now = _judges(before), _judges(after)
    for environment in sorted(was.keys() & now.keys()):
        if was[environment] != now[environment]:
            old, new = (", ".join(sorted(one[environment])) for one in (was, now))
            yield f"{environment}: {old} before; {new} after"


def _judges(run: ComparedRun) -> dict[str, set[str]]:
    """What judged each environment of a run: versions, after the name of another verifier."""
    found: dict[str, set[str]] = {}
    for judge, versions in run.verdicts.items():
        environment, _, other = judge.partition("/")
        name = f"{other} " if other else ""
        found.setdefault(environment, set()).update(f"{name}version {one}" for one in versions)
    return found


def range_of(runs: Sequence[ComparedRun], options: ProfileOptions) -> RewardRange:
    """The range of rewards that bounds of these runs assume."""
    return reward_range(options.rewards, (task for run in runs for task in run.judged.values()))
