"""Warnings about a run. Each warning has a name, a sentence and figures. Pure.

A warning is a reason to look at rollouts, not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gymmesh_client.summary import mixed_versions
from gymmesh_data.profile.distributions import TimeBin
from gymmesh_data.profile.totals import Totals

_FEW: Final = 0.05
_HALF: Final = 0.5
_LEAST: Final = 30  # rollouts below which a trend says nothing


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """A warning: a stable name, what was seen and what to do, and the figures behind it."""

    name: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


def warnings_of(totals: Totals) -> list[HealthWarning]:
    """All warnings about a run."""
    return [*_rewards(totals), *_doubles(totals), *_outcomes(totals), *_hacking(totals)]


def _rewards(totals: Totals) -> Iterator[HealthWarning]:
    reward = totals.reward
    if reward.count > 1 and reward.least == reward.greatest:
        text = f"every reward is {reward.least:g}, so there is nothing to learn; check the verifier"
        yield HealthWarning(
            "constant_reward", text, {"reward": reward.least, "rollouts": reward.count}
        )
        return
    repeated = [task for task in totals.tasks.values() if task.judged > 1]
    alike = sum(task.least == task.greatest for task in repeated)
    if repeated and alike / len(repeated) > _HALF:
        text = (
            f"{alike} of {len(repeated)} tasks have the same reward in all repeats, so the "
            "groups of these tasks have no advantage to train on. --write-tasks writes the "
            "other tasks"
        )
        yield HealthWarning("groups_without_spread", text, {"tasks": alike, "of": len(repeated)})
    for name, part in sorted(totals.components.items()):
        if part.count > 1 and part.least == part.greatest:
            text = f"the reward component {name!r} is always {part.least:g}"
            yield HealthWarning("constant_component", text, {"value": part.least})


def _doubles(totals: Totals) -> Iterator[HealthWarning]:
    if totals.repeated_rows:
        text = f"rows skipped because of a duplicate rollout_id: {totals.repeated_rows}"
        yield HealthWarning("repeated_rows", text, {"rows": totals.repeated_rows})
    mixed = [task for task in totals.tasks.values() if task.mixed]
    if mixed:
        text = (
            f"tasks with different prompts: {len(mixed)}, first {mixed[0].task_id!r}. All "
            "rollouts with the same task_id count as repeats of one task, but a task_id is "
            "only unique within a task file. Profile different task files separately"
        )
        yield HealthWarning("mixed_tasks", text, {"tasks": len(mixed), "of": len(totals.tasks)})
    doubles = sum(task.doubles for task in totals.tasks.values())
    if totals.reward.count and doubles / totals.reward.count > _FEW:
        text = (
            f"{doubles} of {totals.reward.count} rollouts have exactly the same text as "
            "another rollout of their task. Check whether the temperature is 0 or an answer "
            "cache is on"
        )
        yield HealthWarning("same_rollouts", text, {"rollouts": doubles, "of": totals.reward.count})


def _outcomes(totals: Totals) -> Iterator[HealthWarning]:
    verifier = sum(n for cause, n in totals.failures.items() if cause[0] == "VERIFIER")
    if verifier:
        text = (
            f"rollouts that failed in the verifier: {verifier}. All figures exclude these rollouts"
        )
        yield HealthWarning("verifier_errors", text, {"rollouts": verifier})
    for mixed in mixed_versions(totals.verdicts):
        text = (
            f"verdicts have different versions: {mixed}. Compare verdicts of one version only, or "
            "rescore all rollouts with gym-cli reverify"
        )
        yield HealthWarning("mixed_verdicts", text)
    unjudged = totals.unjudged.total()
    if unjudged:
        text = (
            f"rollouts without a reward: {unjudged}. All figures exclude these rollouts, so "
            "a missing reward does not count as 0"
        )
        yield HealthWarning("unjudged", text, {"rollouts": unjudged})
    cut = totals.cut_short
    if totals.reward.count and cut / totals.reward.count > _FEW:
        text = (
            f"{cut} of {totals.reward.count} rollouts were cut short by a limit of steps, "
            "tokens or context. Raise this limit. With a low limit, rewards measure the limit"
        )
        yield HealthWarning("truncation", text, {"rollouts": cut, "of": totals.reward.count})


def _hacking(totals: Totals) -> Iterator[HealthWarning]:
    if totals.empty_solved:
        text = (
            f"rollouts that solved the task without an answer or a tool call: {totals.empty_solved}"
        )
        yield HealthWarning("rewarded_empty_answers", text, {"rollouts": totals.empty_solved})
    if totals.at_once_solved:
        text = (
            f"{totals.at_once_solved} of the {totals.at_once} rollouts that called every "
            "tool at once solved the task"
        )
        figures = {"solved": totals.at_once_solved, "rollouts": totals.at_once}
        yield HealthWarning("all_tools_at_once", text, figures)
    slope = length_correlation(totals)
    if slope is not None and abs(slope) > _HALF and totals.lengths.count >= _LEAST:
        kind = "longer" if slope > 0 else "shorter"
        text = (
            f"{kind} rollouts have higher rewards (correlation {slope:.2f}). Check whether "
            "the verifier rewards length"
        )
        yield HealthWarning("length_rewarded", text, {"correlation": slope})
    yield from _drift(totals)


def length_correlation(totals: Totals) -> float | None:
    """Pearson's correlation of output tokens and reward; None if the tokens or the rewards are
    constant.
    """
    tokens, rewards, count = totals.lengths, totals.length_rewards, totals.lengths.count
    if count < 2 or not tokens.deviation or not rewards.deviation:
        return None
    shared = totals.products - tokens.total * rewards.total / count
    return max(-1.0, min(1.0, shared / (count - 1) / (tokens.deviation * rewards.deviation)))


def _drift(totals: Totals) -> Iterator[HealthWarning]:
    """Whether the last third of the rollouts is much longer or shorter than the first third."""
    parts = [one for _, one in totals.series]
    third = sum(one.rollouts for one in parts) / 3
    if third * 3 < _LEAST:
        return
    early, late = _first(parts, third), _first(parts[::-1], third)
    if early.rollouts + late.rollouts > third * 3:  # they overlap
        return
    before, after = early.tokens / early.rollouts, late.tokens / late.rollouts
    if before and after and abs(math.log2(after / before)) > _HALF:
        text = (
            f"output tokens per rollout changed from {before:.0f} to {after:.0f} between the "
            "first and the last third of the run"
        )
        yield HealthWarning("length_drift", text, {"first": before, "last": after})


def _first(parts: list[TimeBin], rollouts: float) -> TimeBin:
    taken = TimeBin()
    for one in parts:
        if taken.rollouts >= rollouts:
            break
        taken.take(one)
    return taken
