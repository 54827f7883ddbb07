"""Rewards for rollouts that have none."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh_trainers.hooks import Siblings, filler_rewards


def test_a_missing_reward_is_the_mean_of_its_group() -> None:
    rewards = [1.0, None, 0.5, None, 0.0]
    assert filler_rewards(rewards, ["a", "a", "a", "b", "c"]) == [1.0, 0.75, 0.5, 0.5, 0.0]
    assert filler_rewards([None, None], ["a", "a"]) is None


async def test_one_without_a_reward_waits_for_its_siblings() -> None:
    siblings = Siblings()
    for key in ("a", "a", "a", "a", "b"):
        siblings.begin(key)
    waiting = [asyncio.create_task(siblings.mean("a")) for _ in range(2)]
    siblings.end("a", 1.0)
    siblings.end("b", 9.0)
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    siblings.end("a", 0.5)
    assert await asyncio.gather(*waiting) == [0.75, 0.75]
    siblings.begin("a")  # the next group of the same task is another one
    assert await siblings.mean("a") is None


@pytest.mark.parametrize("rewards", [[], [0.25]])
async def test_a_sibling_that_is_cancelled_leaves_nobody_waiting(rewards: list[float]) -> None:
    siblings = Siblings()
    for _ in range(2 + len(rewards)):
        siblings.begin("a")
    waiting = asyncio.create_task(siblings.mean("a"))
    await asyncio.sleep(0)
    for reward in rewards:
        siblings.end("a", reward)
    siblings.end("a", None)
    assert await waiting == (rewards[0] if rewards else None)
