"""How many verdicts changed, and how. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client.means import SCALE

# Rewards of a continuous kind would otherwise fill the table.
_MOST_KINDS: Final = 12
_COUNTS: Final = ("judged", "changed", "raised", "lowered", "failed")


@dataclass(slots=True)
class OfEnvironment:
    """The verdicts of one environment's rollouts.

    Attributes:
        judged: rollouts with a new verdict.
        changed: of these, those with another reward, or with one now or before alone.
        raised, lowered: of these, those with a higher and a lower reward than before.
        failed: rollouts that could not be judged; their old verdict counts nowhere.
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


@dataclass(slots=True)
class VerdictChanges:
    """What judging again came to.

    Attributes:
        kinds: how often a reward became another, as `0 -> 1`; none where there is no reward.
        kept: rollouts that were judged before an interruption.
        left_out: rollouts that are not judged, by the reason.
        causes: why rollouts could not be judged; first_failure: the first of these, in words.
    """

    environments: dict[str, OfEnvironment] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""

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
        }

    def table(self) -> list[str]:
        """The comparison, for people: a line for each environment, and what became of rewards."""
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
        rows += [f"reward        {count} {kind}" for kind, count in kinds[:_MOST_KINDS]]
        if len(kinds) > _MOST_KINDS:
            rows.append(f"reward        {len(kinds) - _MOST_KINDS} other changes")
        return rows


def _mean(total: float, count: int) -> float | None:
    return total / count / SCALE if count else None


def _said(reward: float | None) -> str:
    return "none" if reward is None else f"{reward:.3g}"
