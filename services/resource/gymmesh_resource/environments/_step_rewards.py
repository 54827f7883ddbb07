"""The reward of an episode, from the rewards of its steps that a remote server sends. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from gymmesh_resource.verdicts import Outcome, Skipped, Verdict

EpisodeRule: TypeAlias = Literal["sum", "last", "max"]
"""How the reward of an episode is calculated from the rewards of its steps."""


def read_reward(reward: object) -> float | None:
    """Read a reward that a server sent; None: the step had no reward. Raises ValueError.

    True and false are rewards, as in OpenEnv.
    """
    if reward is None:
        return None
    if isinstance(reward, int | float):
        try:
            number = float(reward)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise ValueError(f"its reward is {str(reward)[:50]!r}, not a finite number")


def verdict_of(
    rewards: Sequence[float],
    rule: EpisodeRule,
    unrewarded: float | None,
    evidence: Mapping[str, Any],
) -> Outcome:
    """The episode's verdict. `unrewarded`: its reward if no step had one; None: it is skipped."""
    if rewards:
        return Verdict(_combined(rewards, rule), evidence=evidence)
    if unrewarded is None:
        return Skipped("no step of the episode returned a reward", evidence)
    return Verdict(unrewarded, evidence=evidence)


def _combined(rewards: Sequence[float], rule: EpisodeRule) -> float:
    if rule == "last":
        return rewards[-1]
    return max(rewards) if rule == "max" else math.fsum(rewards)
