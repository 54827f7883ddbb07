"""Evaluation beside training: rollouts of their own, which no step sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from gymmesh_trainers.rollouts import RolloutGroup

_GREEDY: Final = {"temperature": 0.0}
# Of training's parameters these shape a distribution that greedy sampling doesn't have.
_SAMPLING: Final = frozenset(("temperature", "top_p", "top_k", "min_p"))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        groups: one for each task, in the order in which they finished.
        counts: `groups`, `rollouts` with a reward, `failed` and `unscored`.
    """

    groups: list[RolloutGroup] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        mean = "none" if self.mean_reward is None else f"{self.mean_reward:g}"
        return f"<Evaluation of {len(self.groups)} tasks: mean reward {mean}>"

    @property
    def rewards(self) -> list[float]:
        """All rewards. Failed and unscored rollouts have none."""
        return [reward for group in self.groups for reward in group.rewards]

    @property
    def mean_reward(self) -> float | None:
        """The mean over tasks of each task's mean reward; None: nothing has a reward."""
        means = [fmean(group.rewards) for group in self.groups if group.rewards]
        return fmean(means) if means else None

    def add(self, group: RolloutGroup) -> None:
        """A task's rollouts are finished."""
        self.groups.append(group)
        self.counts.update(
            groups=1,
            rollouts=len(group.rollouts),
            failed=len(group.failed),
            unscored=len(group.unscored),
        )


def greedy(training: Mapping[str, Any], params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of an evaluation: training's, but sampled greedily, and then `params`."""
    kept = {key: value for key, value in training.items() if key not in _SAMPLING}
    return kept | _GREEDY | dict(params or {})
