"""Computes a rollout's reward from the rewards of its turns and tool calls: RewardRule of the
contract.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gymmesh.resource.v1 import resource_pb2


def added_reward(rule: resource_pb2.RewardRule.ValueType, step_rewards: Sequence[float]) -> float:
    """What the rewards of turns and tool calls add to the verifier's reward.

    With REWARD_RULE_SUM: the sum of the rewards, rounded once. With every other rule: 0.0, because
    the verifier itself includes or ignores these rewards.

    Raises:
        ValueError: the sum is not a finite number.
    """
    if rule != resource_pb2.REWARD_RULE_SUM:
        return 0.0
    try:
        added = math.fsum(step_rewards)
    except (OverflowError, ValueError):  # beyond the range of a float, or infinities of both signs
        added = math.nan
    return _finite(added, "the sum of the rewards of turns and tool calls")


def rollout_reward(
    verifier_reward: float,
    rule: resource_pb2.RewardRule.ValueType,
    step_rewards: Sequence[float],
) -> float:
    """The rollout's reward: the verifier's reward plus `added_reward`.

    Raises:
        ValueError: the reward is not a finite number.
    """
    total = verifier_reward + added_reward(rule, step_rewards)
    return _finite(total, "the sum of the rewards of the verifier, turns and tool calls")


def _finite(number: float, what: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}, not a finite number")
    return number
