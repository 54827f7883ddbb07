"""One rollout with a scripted model: for tests of environments and agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymmesh_model.backends.scripted import Answer, ScriptedBackend
from gymmesh_trainers.rollouts import FailedRollout, Rollout
from gymmesh_trainers.trainer_collector import MeshPlace, TaskLike, TrainerCollector

__all__ = ["RolloutFailed", "run_one"]


class RolloutFailed(Exception):
    """The rollout failed; its text says where and why.

    Attributes:
        rollout: the rollout as far as it got.
    """

    def __init__(self, rollout: FailedRollout) -> None:
        self.rollout = rollout
        super().__init__(f"{rollout.boundary}: {rollout.reason}: {rollout.why}")


async def run_one(
    environment: MeshPlace, task: TaskLike, answers: Sequence[Answer], **options: Any
) -> Rollout:
    """Run a task in an environment, with a scripted model that gives `answers`, one per model call.

        rollout = await run_one(Shop(), task, [{"tool": "price", "arguments": {"item": "tea"}},
                                               "It costs 4 euros."])
        assert rollout.reward == 1.0

    An answer is a text, a tool call as above, or a list of these. `options`: see Settings.

    Raises:
        RolloutFailed: infrastructure failed, or the script had too few answers.
        UserError, ConfigError: the task or the environment is invalid.
    """
    script = ScriptedBackend(answers)
    async with TrainerCollector(environment, model=script, **options) as collector:
        rollout = await collector.one(task)
    if isinstance(rollout, FailedRollout):
        raise RolloutFailed(rollout)
    return rollout
