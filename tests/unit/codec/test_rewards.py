"""What the rewards of turns and tool calls add to the verifier's, under each rule."""

from __future__ import annotations

import math

import pytest

from gymmesh.resource.v1 import resource_pb2
from gymmesh_responses import added_reward, rollout_reward

SUM = resource_pb2.REWARD_RULE_SUM


@pytest.mark.parametrize("rule", sorted(set(resource_pb2.RewardRule.values()) - {SUM}))
@pytest.mark.parametrize("rewards", [[], [0.5, -0.25], [math.inf], [math.nan]])
def test_only_the_rule_sum_adds(
    rule: resource_pb2.RewardRule.ValueType, rewards: list[float]
) -> None:
    assert added_reward(rule, rewards) == 0.0
    assert rollout_reward(0.75, rule, rewards) == 0.75


def test_the_sum_is_rounded_once() -> None:
    steps = [0.1] * 10
    assert sum(steps) != 1.0
    assert added_reward(SUM, steps) == 1.0
    assert rollout_reward(0.5, SUM, steps) == 1.5
    assert rollout_reward(0.5, SUM, []) == 0.5
    assert rollout_reward(0.5, SUM, [0.25, -0.75]) == 0.0


@pytest.mark.parametrize(
    "steps",
    [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [1e308, 1e308]],
)
def test_steps_without_a_finite_sum_are_an_error(steps: list[float]) -> None:
    with pytest.raises(ValueError, match=r"turns and tool calls is (nan|-?inf), not a finite"):
        added_reward(SUM, steps)
    with pytest.raises(ValueError, match="not a finite number"):
        rollout_reward(0.0, SUM, steps)


@pytest.mark.parametrize("verifier", [1e308, math.nan, math.inf])
def test_a_total_beyond_a_float_is_an_error(verifier: float) -> None:
    assert added_reward(SUM, [1e308]) == 1e308
    with pytest.raises(ValueError, match="rewards of the verifier, turns and tool calls"):
        rollout_reward(verifier, SUM, [1e308])
