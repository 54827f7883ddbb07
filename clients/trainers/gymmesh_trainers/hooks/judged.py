"""Which reward a rollout is trained with, and what the last judged rollouts of a process had."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Final

from gymmesh_trainers.rollouts import FailedRollout, Rollout


def trained_reward(rollout: Rollout | FailedRollout) -> float | None:
    """The reward of a rollout for a trainer that has one for each: that of its last sample's actor.
    None where it failed or was not judged, or where nothing of it can be trained.
    """
    if isinstance(rollout, FailedRollout) or rollout.last_sample is None:
        return None
    return rollout.reward_of(rollout.last_sample.actor)


class JudgedRollouts:
    """The rewards and components of the last 1,000 judged rollouts."""

    _MOST: Final = 1_000

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.components: dict[str, list[float]] = {}

    def add(self, reward: float, components: Mapping[str, float]) -> None:
        """A rollout was judged."""
        self.rewards = [*self.rewards[1 - self._MOST :], reward]
        for name, value in components.items():
            known = self.components.get(name, [])
            self.components[name] = [*known[1 - self._MOST :], value]

    @property
    def mean(self) -> float | None:
        """The mean of the rewards; None where none was judged."""
        return fmean(self.rewards) if self.rewards else None
