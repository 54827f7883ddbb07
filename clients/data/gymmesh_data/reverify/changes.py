"""How many verdicts changed, and how. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gymmesh_client.means import SCALE
from gymmesh_data.reverify.replay import Replayed
from gymmesh_data.rollout import Json, StoredRollout, object_of, text_of

# Rewards of a continuous kind would otherwise fill the table.
_MOST_KINDS: Final = 12
_MOST_SHOWN: Final = 10
_MOST_DIFFERENCES: Final = 100
_MOST_ROLLOUTS: Final = 1000
# Reasons in `left_out` of rollouts that were not to be judged.
OTHER_ENVIRONMENTS: Final = "of other environments"
DUPLICATES: Final = "duplicates in the source"
_COUNTS: Final = ("judged", "changed", "raised", "lowered", "failed")


@dataclass(slots=True)
class OfEnvironment:
    """The verdicts of one environment's rollouts.

    Attributes:
        judged: rollouts with a new verdict.
        changed: judged rollouts with a different reward, or with a reward only before or only now.
        raised, lowered: judged rollouts with a higher and a lower reward than before.
        failed: rollouts that could not be judged; their old verdicts are not counted.
        both: rollouts with a reward before and now; old_sum, new_sum: the sums of these rewards,
            each multiplied by `means.SCALE`.
    """

    judged: int = 0
    changed: int = 0
    raised: int = 0
    lowered: int = 0
    failed: int = 0
    both: int = 0
    old_sum: float = 0.0
    new_sum: float = 0.0


class RewardChange(NamedTuple):
    """A rollout with a different reward than before, and the explanation of each verdict."""

    task_id: str
    repeat_index: int
    before: float | None
    now: float | None
    explanation_before: str = ""
    explanation: str = ""

    def __str__(self) -> str:
        why = f"  {self.explanation}" if self.explanation else ""
        change = f"{_said(self.before)} -> {_said(self.now)}"
        return f"{self.task_id} repeat {self.repeat_index}: {change}{why}"


@dataclass(slots=True)
class VerdictChanges:
    """The result of rescoring.

    Attributes:
        kinds: how often a reward changed to a different one, as `0 -> 1`; `none` for no reward.
        kept: rollouts that were judged before an interruption.
        left_out: number of rollouts that are not judged, by reason.
        replayed: rollouts whose tool calls were replayed; differing: replayed rollouts with a
            different answer; differences: the first of these answers, one line each.
        rollouts: the first rollouts whose reward changed, with both verdicts.
        causes: why rollouts could not be judged; first_failure: the first cause, as a sentence.
    """

    environments: dict[str, OfEnvironment] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    replayed: int = 0
    differing: int = 0
    differences: list[str] = field(default_factory=list)
    rollouts: list[RewardChange] = field(default_factory=list)

    def add_replayed(self, where: str, what: Replayed) -> None:
        """Count a rollout whose tool calls were made again."""
        self.replayed += 1
        self.differing += bool(what.differences)
        for one in what.differences[: _MOST_DIFFERENCES - len(self.differences)]:
            self.differences.append(f"{where}: {one}")

    def compare(self, rollout: StoredRollout, row: Json) -> None:
        """Keep both verdicts of a rollout if the reward changed, for the first thousand such
        rollouts.
        """
        if rollout.reward != row["reward"] and len(self.rollouts) < _MOST_ROLLOUTS:
            before = text_of(rollout.verification, "explanation")
            now = text_of(object_of(row, "verification"), "explanation")
            place = (rollout.task_id, rollout.repeat_index)
            self.rollouts.append(RewardChange(*place, rollout.reward, row["reward"], before, now))

    def add(self, environment: str, old: float | None, new: float | None) -> None:
        """Count a new verdict."""
        one = self.environments.setdefault(environment, OfEnvironment())
        one.judged += 1
        if old is not None and new is not None:
            one.both += 1
            one.old_sum += old * SCALE
            one.new_sum += new * SCALE
            one.raised += new > old
            one.lowered += new < old
        if old != new:
            one.changed += 1
            self.kinds[f"{_said(old)} -> {_said(new)}"] += 1

    def add_failure(self, environment: str, reason: str, message: str) -> None:
        """Count a rollout that could not be judged."""
        self.environments.setdefault(environment, OfEnvironment()).failed += 1
        self.causes[reason] += 1
        self.first_failure = self.first_failure or f"{reason}: {message}"

    @property
    def judged(self) -> int:
        """Rollouts with a new verdict, in all."""
        return sum(one.judged for one in self.environments.values())

    @property
    def changed(self) -> int:
        """Verdicts that changed, in all."""
        return sum(one.changed for one in self.environments.values())

    @property
    def skipped(self) -> int:
        """Rollouts that were to be judged and were skipped, such as those without a state."""
        not_asked_for = self.left_out[OTHER_ENVIRONMENTS] + self.left_out[DUPLICATES]
        return self.left_out.total() - not_asked_for

    @property
    def failed(self) -> int:
        """Rollouts that could not be judged, in all."""
        return sum(one.failed for one in self.environments.values())

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            "judged": self.judged,
            "changed": self.changed,
            "failed": self.failed,
            "kept_from_earlier": self.kept,
            "environments": {
                name: {
                    **{key: getattr(one, key) for key in _COUNTS},
                    "mean_reward_before": _mean(one.old_sum, one.both),
                    "mean_reward": _mean(one.new_sum, one.both),
                }
                for name, one in sorted(self.environments.items())
            },
            "changes": dict(self.kinds.most_common()),
            "causes": dict(sorted(self.causes.items())),
            "left_out": dict(sorted(self.left_out.items())),
            "replayed": self.replayed,
            "replayed_differing": self.differing,
            "differences": self.differences,
            "rollouts": [one._asdict() for one in self._in_order()],
        }

    def _in_order(self) -> list[RewardChange]:
        """The changed rollouts by task and repeat, whatever order they ended in."""
        return sorted(self.rollouts, key=lambda one: (one.task_id, one.repeat_index))

    def table(self) -> list[str]:
        """The comparison, for people: a line for each environment, and the changes of rewards."""
        head = ("environment", "judged", "same", "changed", "up", "down", "failed", "mean before")
        lines: list[tuple[str, ...]] = [(*head, "mean now")]
        for name, one in sorted(self.environments.items()):
            counts = (one.judged, one.judged - one.changed, one.changed, one.raised, one.lowered)
            means = (_mean(one.old_sum, one.both), _mean(one.new_sum, one.both))
            said = ("-" if mean is None else f"{mean:.3f}" for mean in means)
            lines.append((name, *map(str, counts), str(one.failed), *said))
        first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
        rows = []
        for name, *words in lines:
            right = (word.rjust(width) for word, width in zip(words, others, strict=True))
            rows.append("  ".join([name.ljust(first), *right]))
        kinds = self.kinds.most_common()
        rows += [
            f"reward        {kind}  (rollouts: {count})" for kind, count in kinds[:_MOST_KINDS]
        ]
        if len(kinds) > _MOST_KINDS:
            rows.append(f"reward        other changes: {len(kinds) - _MOST_KINDS}")
        rows += [f"changed       {one}" for one in self._in_order()[:_MOST_SHOWN]]
        if len(self.rollouts) > _MOST_SHOWN:
            more = self.changed - _MOST_SHOWN
            rows.append(f"changed       other rollouts: {more}; see --json and the rows")
        if self.replayed:
            rows.append(
                f"replayed      {self.replayed} "
                f"rollout{'' if self.replayed == 1 else 's'}, {self.differing} with "
                "differences"
            )
        rows += [f"differs       {one}" for one in self.differences[:_MOST_SHOWN]]
        return rows


def _mean(total: float, count: int) -> float | None:
    return total / count / SCALE if count else None


def _said(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:.3g}"
