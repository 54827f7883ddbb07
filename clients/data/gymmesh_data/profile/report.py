"""A profile: the figures of some runs, computed from their totals."""

from __future__ import annotations

import math
import statistics
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh_data.profile import resampling
from gymmesh_data.profile.bounds import RewardBounds, RewardRange, reward_range, rollout_bounds
from gymmesh_data.profile.estimators import majority_at_k, pass_at_k, pass_hat_k, ratio
from gymmesh_data.profile.facts import Fields
from gymmesh_data.profile.health import HealthWarning, length_correlation, warnings_of
from gymmesh_data.profile.totals import TaskTotals, Totals, totals_of
from gymmesh_data.rollout import StoredRollout

_MOST_GROUPS: Final = 50
_MOST_MAJORITY: Final = 32  # exact counting of votes takes long beyond
_BANDS: Final = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The options of a profile.

    Attributes:
        solved_at: a rollout solves its task when its reward is at least this.
        resamples: the draws of each bootstrap; 0: no intervals.
        seed: the seed of the random draws.
        confidence: the confidence level of intervals.
        rewards: the lowest and highest reward that a rollout without a reward could have had;
            extended to the observed rewards.
        fields: the keys of rows that the profile reads.
    """

    solved_at: float = 1.0
    resamples: int = 2000
    seed: int = 0
    confidence: float = 0.95
    rewards: RewardRange = (0.0, 1.0)
    fields: Fields = field(default_factory=Fields)


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over tasks.

    Attributes:
        standard_error: clustered by task; None for a single task.
        interval: from the bootstrap over tasks; None without numpy or with a single task.
        tasks: how many tasks count in it.
    """

    value: float
    standard_error: float | None
    interval: tuple[float, float] | None
    tasks: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The figures of the tasks of an environment, a tag or a difficulty."""

    kind: str
    name: str
    tasks: int
    judged: int
    failed: int
    mean: Figure | None
    pass_rate: Figure | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        named = asdict(self)
        mean, rate = named.pop("mean"), named.pop("pass_rate")
        return named | {"mean_reward": mean, "pass_at_1": rate}


@dataclass(frozen=True, slots=True)
class Profile:
    """The result of `profile`.

    Attributes:
        totals: the source of the profile, with distributions and counts.
        estimates: by name (pass_at, pass_hat, majority_at, avg_at) and k.
        median: of the tasks' mean rewards, with its interval.
        groups: the figures by environment, tag and difficulty; left_out: tags with too many values
            for groups.
        bounds: of the mean over all rollouts, when some have no reward; None when none is missing.
        bands: how many tasks have a pass rate of 0, up to 0.25, 0.5, 0.75, below 1, and of 1.
    """

    inputs: tuple[str, ...]
    options: ProfileOptions
    totals: Totals
    mean: Figure | None
    bounds: RewardBounds | None
    median: tuple[float, tuple[float, float] | None] | None
    estimates: dict[str, dict[int, Figure]]
    groups: list[GroupFigures]
    left_out: list[str]
    bands: dict[str, int]
    warnings: list[HealthWarning]

    def tasks_between(self, low: float, high: float) -> Iterator[TaskTotals]:
        """The tasks whose pass rate is in a band, both ends included, in the order of the rows."""
        for task in self.totals.tasks.values():
            rate = task.pass_rate
            if rate is not None and low <= rate <= high:
                yield task

    def to_dict(self) -> dict[str, Any]:
        """For JSON; docs/how-to/profile.md has the keys."""
        totals, median = self.totals, self.median
        return {
            "inputs": list(self.inputs),
            "solved_at": self.options.solved_at,
            "seed": self.options.seed,
            "resamples": self.options.resamples,
            "confidence": self.options.confidence,
            "rollouts": self.rollouts(),
            "tasks": {"all": len(totals.tasks), **self.bands},
            "mean_reward": self.mean and asdict(self.mean),
            "mean_reward_bounds": self.bounds and asdict(self.bounds),
            "median_reward": median and {"value": median[0], "interval": median[1]},
            "estimates": {
                name: {str(k): asdict(figure) for k, figure in by_k.items()}
                for name, by_k in self.estimates.items()
            },
            "groups": [one.to_dict() for one in self.groups],
            "tags_left_out": self.left_out,
            "components": {name: d.to_dict() for name, d in sorted(totals.components.items())},
            "distributions": {
                "reward": totals.reward.to_dict(),
                "steps": totals.steps.to_dict(),
                "turns": totals.turns.to_dict(),
                "tool_calls": totals.calls.to_dict(),
            },
            "tokens": {
                name: one.to_dict() | {"total": one.total}
                for name, one in sorted(totals.tokens.items())
            },
            "latency_s": {name: d.to_dict() for name, d in sorted(totals.latency.items())},
            "tools": {name: asdict(one) for name, one in sorted(totals.tools.items())},
            "failures": [
                {"boundary": boundary, "reason": reason, "component": component, "count": count}
                for (boundary, reason, component), count in sorted(totals.failures.items())
            ],
            "stop_reasons": dict(sorted(totals.stop_reasons.items())),
            "model_retries": dict(sorted(totals.model_retries.items())),
            "length_correlation": length_correlation(totals),
            "over_time": [{"started_at": at, **asdict(one)} for at, one in totals.series],
            "verdicts": {
                name: dict(sorted(versions.items()))
                for name, versions in sorted(totals.verdicts.items())
            },
            "health": [asdict(one) for one in self.warnings],
            "not_read": dict(sorted(totals.unread.items())),
        }

    def rollouts(self) -> dict[str, int]:
        """How many rollouts there are of each kind."""
        totals = self.totals
        return {
            "completed": totals.completed,
            "judged": totals.reward.count,
            "unjudged": totals.unjudged.total(),
            "failed": totals.failures.total(),
            "repeated_rows": totals.repeated_rows,
        }


def profile(
    paths: Sequence[Path],
    options: ProfileOptions | None = None,
    *,
    on_rollout: Callable[[StoredRollout], None] | None = None,
) -> Profile:
    """Profile some runs and files together, in one pass over their rows.

    A rollout in several runs or files counts once. Failed and unjudged rollouts are excluded from
    all reward figures and never count as 0.

    Args:
        on_rollout: called with each rollout as it is read.

    Raises:
        UserError: a file cannot be read, a row is not a rollout's, or there are no rows.
    """
    options = options or ProfileOptions()
    totals = totals_of(list(paths), options.solved_at, options.fields, on_rollout)
    tasks = [task for task in totals.tasks.values() if task.judged]
    most = max((task.judged for task in tasks), default=0)
    columns = [one for k in powers(most) for one in _estimates_at(tasks, k)]
    figures = figures_of([_rewards(tasks), *(column for _, _, column in columns)], options)
    estimates: dict[str, dict[int, Figure]] = {}
    for (name, k, _), figure in zip(columns, figures[1:], strict=True):
        if figure is not None:
            estimates.setdefault(name, {})[k] = figure
    groups, left_out = _groups(totals, options)
    return Profile(
        tuple(map(str, paths)),
        options,
        totals,
        figures[0],
        _bounds(totals, options),
        _median(tasks, options),
        estimates,
        groups,
        left_out,
        bands_of(tasks),
        warnings_of(totals),
    )


def _bounds(totals: Totals, options: ProfileOptions) -> RewardBounds | None:
    tasks = list(totals.tasks.values())
    found = rollout_bounds(tasks, reward_range(options.rewards, tasks))
    return found if found is not None and found.missing else None


def figures_of(
    columns: Sequence[resampling.Column], options: ProfileOptions
) -> list[Figure | None]:
    """The means of columns of equal length; None for a column without a weight."""
    intervals: list[tuple[float, float] | None] = [None] * len(columns)
    if options.resamples and resampling.available():
        intervals = resampling.bootstrap(
            columns, resamples=options.resamples, seed=options.seed, confidence=options.confidence
        )
    found: list[Figure | None] = []
    for (sums, weights), interval in zip(columns, intervals, strict=True):
        told = ratio(sums, weights)
        if told is None:
            found.append(None)
            continue
        mean, error = told
        tasks = sum(map(bool, weights))
        found.append(Figure(mean, None if math.isnan(error) else error, interval, tasks))
    return found


def powers(most: int) -> list[int]:
    """1, 2, 4 … and `most`."""
    return sorted({*(2**power for power in range(most.bit_length())), most} - {0})


def bands_of(tasks: Sequence[TaskTotals]) -> dict[str, int]:
    """How many tasks are solved never, seldom … and always."""
    names = ("never_solved", "to_quarter", "to_half", "to_three_quarters", "below_all")
    counts = dict.fromkeys((*names, "always_solved"), 0)
    for task in tasks:
        rate = task.pass_rate or 0.0
        counts["always_solved" if rate == 1.0 else names[bisect_left(_BANDS, rate)]] += 1
    return counts


_Averaged = tuple[str, int, resampling.Column]


def _rewards(tasks: list[TaskTotals]) -> resampling.Column:
    return [round(one.reward, 12) for one in tasks], [float(one.judged) for one in tasks]


def _estimates_at(tasks: list[TaskTotals], k: int) -> Iterator[_Averaged]:
    """What is estimated for k: the name, k, and each task's sum and weight."""
    enough = array("d", (task.judged >= k for task in tasks))

    def column(estimate: Callable[[TaskTotals], float]) -> resampling.Column:
        return array("d", (estimate(one) if one.judged >= k else 0.0 for one in tasks)), enough

    yield "pass_at", k, column(lambda task: pass_at_k(task.judged, task.solved, k))
    yield "pass_hat", k, column(lambda task: pass_hat_k(task.judged, task.solved, k))
    yield "avg_at", k, column(lambda task: task.mean or 0.0)
    if k <= _MOST_MAJORITY and any(task.answers for task in tasks):
        yield "majority_at", k, _votes(tasks, k)


def _votes(tasks: list[TaskTotals], k: int) -> resampling.Column:
    """Majority votes; of tasks with an answer. Rollouts without one vote for one of their own."""
    sums, weights = array("d", [0.0]) * len(tasks), array("d", [0.0]) * len(tasks)
    for place, task in enumerate(tasks):
        if task.answers and task.judged >= k:
            given = sorted((n, right / n) for n, right in task.answers.values())
            silent = task.judged - sum(n for n, _ in given)
            solved = task.solved - sum(right for _, right in task.answers.values())
            if silent:
                given.append((silent, solved / silent))
            sums[place], weights[place] = majority_at_k(tuple(given), k), 1.0
    return sums, weights


def _median(
    tasks: list[TaskTotals], options: ProfileOptions
) -> tuple[float, tuple[float, float] | None] | None:
    means = sorted(task.mean or 0.0 for task in tasks)
    if not means:
        return None
    interval = None
    if options.resamples and resampling.available():
        interval = resampling.bootstrap_median(
            means, resamples=options.resamples, seed=options.seed, confidence=options.confidence
        )
    return statistics.median(means), interval


def _groups(totals: Totals, options: ProfileOptions) -> tuple[list[GroupFigures], list[str]]:
    by_kind: dict[str, dict[str, list[TaskTotals]]] = {}
    for task in totals.tasks.values():
        for kind, name in task.labels:
            by_kind.setdefault(kind, {}).setdefault(name, []).append(task)
    left_out = sorted(kind for kind, names in by_kind.items() if len(names) > _MOST_GROUPS)
    groups = [
        _group(kind, name, by_kind[kind][name], options)
        for kind in sorted(by_kind)
        if kind not in left_out
        for name in sorted(by_kind[kind])
    ]
    return groups, left_out


def _group(kind: str, name: str, tasks: list[TaskTotals], options: ProfileOptions) -> GroupFigures:
    rates = [task.pass_rate or 0.0 for task in tasks], [float(task.judged > 0) for task in tasks]
    mean, rate = figures_of([_rewards(tasks), rates], options)
    judged, failed = sum(task.judged for task in tasks), sum(task.failed for task in tasks)
    return GroupFigures(kind, name, len(tasks), judged, failed, mean, rate)
