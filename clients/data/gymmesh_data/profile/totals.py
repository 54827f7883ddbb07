"""Rollouts added up: by task, and over all.

Reads one rollout at a time and keeps no rollout. Memory grows with the tasks, and by 16 bytes for
each rollout: hashes of its id and its content, to recognise duplicates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gymmesh_client import UserError
from gymmesh_data.profile.distributions import Distribution, TimeBin, TimeSeries
from gymmesh_data.profile.facts import Facts, Fields, Unread
from gymmesh_data.rollout import CUT_SHORT, StoredRollout
from gymmesh_data.sources import read_outcomes

Labels = tuple[tuple[str, str], ...]
_ERROR: Final = "TOOL_ERROR"
_INVALID: Final = ("BAD_ARGUMENTS", "UNKNOWN_TOOL")


@dataclass(slots=True)
class TaskTotals:
    """The results of one task's rollouts.

    Attributes:
        prompt: an 8-byte hash of the first rollout's input; mixed: whether another rollout has a
            different input.
        judged, unjudged, failed: rollouts with a reward, without one, and without an outcome.
        answers: by answer, how many rollouts gave it and how many of these solved the task.
        seen, contents: an 8-byte hash of each rollout's id, and of each different content.
        doubles: judged rollouts with the same content as an earlier rollout of the task.
    """

    environment: str
    task_id: str
    labels: Labels
    prompt: bytes
    mixed: bool = False
    judged: int = 0
    solved: int = 0
    unjudged: int = 0
    failed: int = 0
    reward: float = 0.0
    least: float = math.inf
    greatest: float = -math.inf
    doubles: int = 0
    answers: dict[bytes, tuple[int, int]] | None = None
    seen: bytearray = field(default_factory=bytearray)
    contents: bytearray = field(default_factory=bytearray)

    @property
    def mean(self) -> float | None:
        """The mean reward; None if no rollout was judged. The order of the rollouts, in which their
        rewards are added, makes no difference.
        """
        return round(self.reward / self.judged, 12) if self.judged else None

    @property
    def pass_rate(self) -> float | None:
        """The share of the judged rollouts that solved the task; None if no rollout was judged."""
        return self.solved / self.judged if self.judged else None


@dataclass(slots=True)
class ToolTotals:
    """Calls of a tool.

    Attributes:
        invalid: calls of a tool that does not exist, or with wrong arguments.
        errors: calls that the tool answered with an error; known: calls whose outcome the row has.
        rollouts: number of rollouts with at least one call.
    """

    calls: int = 0
    invalid: int = 0
    errors: int = 0
    known: int = 0
    rollouts: int = 0

    @property
    def errors_text(self) -> str:
        """The errors, as far as they are known."""
        return str(self.errors) if self.known else "not known"

    def add(self, calls: int, invalid: int, outcomes: Mapping[str, int]) -> None:
        """A rollout's calls.

        Args:
            calls, invalid: in the root agent's conversation, as far as that tells.
            outcomes: what the row says of how calls were answered, other actors' too.
        """
        known = sum(outcomes.values())
        self.calls += max(calls, known)
        self.known += known
        self.invalid += sum(outcomes.get(one, 0) for one in _INVALID) if known else invalid
        self.errors += outcomes.get(_ERROR, 0)
        self.rollouts += 1


@dataclass(slots=True)
class Totals:
    """All that a profile is made of."""

    solved_at: float = 1.0
    tasks: dict[tuple[str, str], TaskTotals] = field(default_factory=dict)
    completed: int = 0
    repeated_rows: int = 0
    reward: Distribution = field(default_factory=Distribution)
    steps: Distribution = field(default_factory=Distribution)
    turns: Distribution = field(default_factory=Distribution)
    calls: Distribution = field(default_factory=Distribution)
    tokens: dict[str, Distribution] = field(default_factory=dict)
    latency: dict[str, Distribution] = field(default_factory=dict)
    components: dict[str, Distribution] = field(default_factory=dict)
    tools: dict[str, ToolTotals] = field(default_factory=dict)
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    stop_reasons: Counter[str] = field(default_factory=Counter)
    model_retries: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    unread: Unread = field(default_factory=Counter)
    # By `JudgedBy.name` how many rewards each of its versions gave, where rows say it.
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    series: TimeSeries = field(default_factory=TimeSeries)
    # What health warnings are made of, counted over judged rollouts.
    cut_short: int = 0
    empty_solved: int = 0
    at_once: int = 0
    at_once_solved: int = 0
    # Of those whose output tokens are known: these, their rewards, and the sum of the products.
    lengths: Distribution = field(default_factory=Distribution)
    length_rewards: Distribution = field(default_factory=Distribution)
    products: float = 0.0
    _labels: dict[Labels, Labels] = field(default_factory=dict)

    def add(self, one: Facts) -> None:
        """Count a rollout. A rollout with an id that was already counted is skipped, and the
        skipped rows are counted.
        """
        key = (one.environment, one.task_id)
        task = self.tasks.get(key)
        if task is None:
            # Tasks with the same labels share them.
            labels = self._labels.setdefault(one.labels, one.labels)
            task = self.tasks[key] = TaskTotals(one.environment, one.task_id, labels, one.prompt)
        task.mixed = task.mixed or one.prompt != task.prompt
        if one.identity:
            if one.identity in task.seen:
                self.repeated_rows += 1
                return
            task.seen += one.identity
        self.model_retries.update(one.model_retries)
        if one.failure is not None:
            task.failed += 1
            self.failures[one.failure] += 1
            return
        self._add_completed(one)
        if one.reward is None:
            task.unjudged += 1
            self.unjudged[one.status or "(none)"] += 1
        else:
            self._add_judged(task, one, one.reward)

    def _add_completed(self, one: Facts) -> None:
        self.completed += 1
        self.stop_reasons[one.stop_reason or "(none)"] += 1
        self.steps.add(one.steps)
        self.turns.add(one.turns)
        self.calls.add(one.calls.total())
        for kinds, values in ((self.tokens, one.tokens), (self.latency, one.latency_s)):
            for name, value in values.items():
                kinds.setdefault(name, Distribution()).add(value)
        for name in one.calls | dict.fromkeys(one.answered, 0):
            tool = self.tools.setdefault(name, ToolTotals())
            tool.add(one.calls[name], one.invalid[name], one.answered.get(name, {}))
        if one.started_at is not None:
            reward, tokens = one.reward, one.tokens.get("output", 0)
            judged = reward is not None
            self.series.add(one.started_at, TimeBin(1, judged, reward or 0.0, tokens))

    def _add_judged(self, task: TaskTotals, one: Facts, reward: float) -> None:
        solved = reward >= self.solved_at
        task.judged += 1
        task.solved += solved
        task.reward += reward
        task.least, task.greatest = min(task.least, reward), max(task.greatest, reward)
        if one.content in task.contents:
            task.doubles += 1
        else:
            task.contents += one.content
        if one.answer is not None:
            task.answers = task.answers or {}
            given, right = task.answers.get(one.answer, (0, 0))
            task.answers[one.answer] = (given + 1, right + solved)
        self.reward.add(reward)
        judge, version = one.judge
        if version:
            self.verdicts.setdefault(judge, Counter())[version] += 1
        for name, value in one.components:
            self.components.setdefault(name, Distribution()).add(value)
        self.cut_short += one.stop_reason in CUT_SHORT
        self.empty_solved += one.empty and solved
        self.at_once += one.all_at_once
        self.at_once_solved += one.all_at_once and solved
        tokens = one.tokens.get("output")
        if tokens is not None:
            self.products += tokens * reward
            self.lengths.add(tokens)
            self.length_rewards.add(reward)


def totals_of(
    paths: list[Path],
    solved_at: float,
    fields: Fields | None = None,
    on_rollout: Callable[[StoredRollout], None] | None = None,
) -> Totals:
    """The totals of some runs and files, in one pass over their rows.

    `on_rollout`: called with each rollout as it is read. Raises UserError if a file cannot be read,
    a row is not a rollout's, or there are no rows.
    """
    totals = Totals(solved_at)
    for rollout in read_outcomes(paths):
        if on_rollout is not None:
            on_rollout(rollout)
        totals.add(Facts(rollout, fields or Fields(), totals.unread))
    if not totals.tasks:
        names = ", ".join(map(str, paths))
        raise UserError(f"{names}: no rollouts yet. Collect rollouts with gym-cli collect")
    return totals
