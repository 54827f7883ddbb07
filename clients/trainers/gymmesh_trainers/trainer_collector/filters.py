"""Rules that choose the groups of a step. Pure.

collector.step(groups=32, keep=spread)
collector.step(groups=32, keep=[spread, pass_rate(0.1, 0.9)])
collector.step(groups=32, keep=lambda group: len(group.rollouts) >= 4)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Final

from gymmesh_trainers.rollouts import RolloutGroup

Keep = Callable[[RolloutGroup], bool]
"""Whether a group is handed to the trainer."""

NO_REWARD: Final = "no_reward"
"""What groups without any reward are rejected for, where a step has rules."""


def spread(group: RolloutGroup) -> bool:
    """Keep groups whose rewards differ, as dynamic sampling does."""
    return not group.no_spread


@dataclass(frozen=True, slots=True)
class PassRate:
    """See `pass_rate`."""

    low: float
    high: float
    solved: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise ValueError(
                f"pass_rate: bounds must be 0 <= low <= high <= 1, not {self.low}, {self.high}"
            )

    def __str__(self) -> str:
        return f"pass_rate({self.low:g}, {self.high:g})"

    def __call__(self, group: RolloutGroup) -> bool:
        rewards = group.rewards
        share = sum(one >= self.solved for one in rewards) / len(rewards) if rewards else -1.0
        return self.low <= share <= self.high


def pass_rate(low: float, high: float, *, solved: float = 1.0) -> Keep:
    """Keep groups in which the share of solved rollouts is between two bounds, both included.

    Args:
        low: the smallest share, from 0 to 1.
        high: the largest share.
        solved: a rollout with at least this reward is solved.

    Raises ValueError if the bounds are not in order.
    """
    return PassRate(low, high, solved)


def rules_of(keep: Keep | Sequence[Keep] | None) -> list[tuple[str, Keep]]:
    """The rules with their names, in order. Raises TypeError for what can't be called."""
    given = [] if keep is None else list(keep) if isinstance(keep, Sequence) else [keep]
    for rule in given:
        if not callable(rule):
            raise TypeError(f"keep: must be a function of a group, not {type(rule).__name__}")
    return [(_name(rule), rule) for rule in given]


def rejected_by(group: RolloutGroup, rules: Sequence[tuple[str, Keep]]) -> str:
    """The name of the first rule that rejects a group; empty: it is kept."""
    if rules and not group.rewards:
        return NO_REWARD
    return next((name for name, rule in rules if not rule(group)), "")


def _name(rule: Keep) -> str:
    if isinstance(rule, FunctionType):
        return rule.__name__
    return str(rule) if isinstance(rule, PassRate) else type(rule).__name__
