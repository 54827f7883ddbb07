"""Combines the rewards of a task's steps into the task's rewards, by Harbor's rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gymmesh_resource.environments.harbor.rewards import NoReward
from gymmesh_resource.environments.harbor.task import Strategy


def task_rewards(steps: Sequence[Mapping[str, float]], strategy: Strategy) -> dict[str, float]:
    """The task's rewards by name, from those of the steps that were judged, in their order.

    `mean`: of each name over all of these steps, where a step without it counts as 0. Raises
    NoReward where no step was judged.
    """
    if not steps:
        raise NoReward("no step of the task was judged")
    if strategy == "final":
        return dict(steps[-1])
    names = dict.fromkeys(name for rewards in steps for name in rewards)
    count = len(steps)
    return {name: sum(rewards.get(name, 0.0) for rewards in steps) / count for name in names}


def below(rewards: Mapping[str, float], least: Mapping[str, float]) -> str:
    """The first reward of a step that is below its minimum for a next step, as one clause; empty if
    there is none.
    """
    for name, amount in least.items():
        actual = rewards.get(name)
        if actual is None or actual < amount:
            shown = "missing" if actual is None else f"{actual:g}"
            return f"the reward {name!r} is {shown}, but min_reward is {amount:g}"
    return ""
