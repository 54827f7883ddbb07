"""The agent `choices`: the policy scores a task's choices; the most probable one is its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Agent
from gymmesh_agent.context import RolloutContext
from gymmesh_agent.loop import Completion
from gymmesh_agent.model import Normalize, ScoredChoice, best_of
from gymmesh_runtime.config import explained
from gymmesh_runtime.errors import MeshError


class ChoicesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of the agent `choices`.

    normalize: what a choice's log probability is divided by before the comparison: `none`, `tokens`
    (the choice's number of tokens) or `bytes` (the choice's number of UTF-8 bytes).
    """

    normalize: Normalize = "none"


class ChoicesAgent(Agent):
    """Answers a multiple-choice task by log probabilities, without sampling."""

    version: ClassVar[str] = "1"
    scores: ClassVar[bool] = True
    description: ClassVar[str] = (
        "The policy scores the task's choices. The agent answers with the most probable choice, or "
        "with the first of equally probable choices."
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Raises ValueError for invalid options."""
        try:
            self._options = msgspec.convert(dict(options), ChoicesOptions)
        except msgspec.ValidationError as error:
            place, problem = explained(error, ChoicesOptions)
            raise ValueError(f"options.{place}: {problem}") from None

    async def run(self, context: RolloutContext) -> Completion:
        """Score the choices, and answer. Raises MeshError FIELD_INVALID for a task without
        choices, and for a task whose environment takes turns.
        """
        if not context.choices:
            raise _unfit(
                context, "has no choices (answers to select from), which the agent 'choices' needs"
            )
        if context.multi_turn:
            raise _unfit(
                context,
                "needs several answers, because the environment takes turns, but the agent "
                "'choices' answers only once",
            )
        await context.choose(self._best)
        return Completion(rollout_pb2.STOP_REASON_MODEL_FINISHED)

    def _best(self, choices: Sequence[ScoredChoice]) -> int:
        return best_of(choices, self._options.normalize)


def _unfit(context: RolloutContext, why: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        f"the task of environment '{context.environment}' {why}. Use the agent tool_loop, which "
        "lets the model write the answer",
        metadata={"field": "task.environment"},
    )
