"""Rewards for rollouts that have none, in trainers that want a number for each.

A rollout that failed, or was not judged, is masked: none of its tokens is trained. The trainer
still computes the mean of the group over its number, so that is the mean of those that were judged:
it moves nobody's advantage by a made-up reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from gymmesh_trainers.hooks.judged import trained_reward
from gymmesh_trainers.rollouts import FailedRollout, Rollout


def filler_rewards(
    rewards: Sequence[float | None], groups: Sequence[Hashable]
) -> list[float] | None:
    """The rewards with the mean of their group in place of None, or of all where the group has no
    reward; None where nobody has one.

    groups: each rollout's group.
    """
    known = [one for one in rewards if one is not None]
    if not known:
        return None
    by_group: dict[Hashable, list[float]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        if reward is not None:
            by_group.setdefault(group, []).append(reward)
    everyone = fmean(known)
    means = {group: fmean(values) for group, values in by_group.items()}
    return [
        means.get(group, everyone) if reward is None else reward
        for group, reward in zip(groups, rewards, strict=True)
    ]


@dataclass(eq=False, slots=True)
class _RunningGroup:
    running: int = 0
    rewards: list[float] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Siblings:
    """The rollouts of a group that run side by side, each called by itself."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _RunningGroup] = {}

    def begin(self, key: Hashable) -> None:
        """A rollout of the group begins."""
        group = self._groups.setdefault(key, _RunningGroup())
        group.running += 1

    def end(self, key: Hashable, reward: float | None) -> None:
        """It ended; None: without a reward."""
        group = self._groups[key]
        group.running -= 1
        if reward is not None:
            group.rewards.append(reward)
        if group.running == 0:
            del self._groups[key]
            group.ended.set()

    async def settled(
        self, key: Hashable, running: Awaitable[Rollout | FailedRollout]
    ) -> tuple[Rollout | FailedRollout, float | None]:
        """A rollout of the group, with its reward (see `trained_reward`). Where it has none, with
        the mean of the siblings that ran beside it, once these ended; None where they have none.
        """
        self.begin(key)
        try:
            rollout = await running
        except BaseException:
            self.end(key, None)
            raise
        reward = trained_reward(rollout)
        if reward is None:
            return rollout, await self.mean(key)
        self.end(key, reward)
        return rollout, reward

    async def mean(self, key: Hashable) -> float | None:
        """End without a reward, and wait for the siblings: the mean of their rewards, or None."""
        group = self._groups[key]
        self.end(key, None)
        await group.ended.wait()
        return fmean(group.rewards) if group.rewards else None
