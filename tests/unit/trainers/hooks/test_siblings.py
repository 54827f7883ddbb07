"""Rewards for rollouts that have none."""

from __future__ import annotations

import asyncio

import pytest

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_trainers import FailedRollout, Rollout
from gymmesh_trainers.hooks import JudgedRollouts, Siblings, filler_rewards, trained_reward
from tests.unit.trainers.hooks.test_lost import rollout_of


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


FAILED = FailedRollout(pb.Rollout(), Task(pb.Task(task_id="t")))


def test_a_rollout_is_trained_with_the_reward_of_its_last_samples_actor() -> None:
    assert trained_reward(rollout_of(([1], [2], ""), ([3], [4], "critic"), critic=0.25)) == 1.0
    assert trained_reward(rollout_of(([3], [4], "critic"), critic=0.25)) == 0.25
    assert trained_reward(rollout_of()) is None  # nothing to train
    assert trained_reward(FAILED) is None


async def test_a_failed_rollout_gets_the_mean_of_those_beside_it() -> None:
    siblings = Siblings()
    goes_on = asyncio.Event()

    async def ends(rollout: Rollout | FailedRollout) -> Rollout | FailedRollout:
        await goes_on.wait()
        return rollout

    async def breaks() -> Rollout:
        await goes_on.wait()
        raise RuntimeError("no memory")

    good = [rollout_of(([1], [2], "critic"), critic=one) for one in (0.5, 1.0)]
    group: list[Rollout | FailedRollout] = [FAILED, *good, FAILED]
    running = [siblings.settled("a", ends(one)) for one in group]
    tasks = [*map(asyncio.ensure_future, running)]
    broken = asyncio.ensure_future(siblings.settled("a", breaks()))
    alone = asyncio.ensure_future(siblings.settled("b", ends(FAILED)))
    await asyncio.sleep(0)
    goes_on.set()
    found = await asyncio.gather(*tasks)
    assert found == [(FAILED, 0.75), (good[0], 0.5), (good[1], 1.0), (FAILED, 0.75)]
    with pytest.raises(RuntimeError):
        await broken
    assert await alone == (FAILED, None)


def test_the_mean_is_of_the_last_thousand_rewards() -> None:
    judged = JudgedRollouts()
    assert judged.mean is None
    for _ in range(1_000):
        judged.add(0.0, {})
    for _ in range(500):
        judged.add(1.0, {"format": 1.0})
    assert judged.mean == 0.5
    assert len(judged.components["format"]) == 500
