"""Says that a model gives no tokens, which a trainer asks for in every call."""

from __future__ import annotations

import logging
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_trainers.rollouts import Rollout

_LOG: Final = logging.getLogger("gymmesh.trainers")


class MissingTokens:
    """Warns once of a completed rollout with an answer of the policy that has no token ids: nothing
    of it can be trained.

    recorded: whether the answers were made before: those of a test, which nobody trains.
    """

    def __init__(self, *, recorded: bool) -> None:
        self._said = recorded

    def look(self, rollout: Rollout) -> None:
        """Warn where this is the first such rollout."""
        call = (
            None if self._said else next(filter(_lacks_tokens, rollout.message.model_calls), None)
        )
        if call is None:
            return
        self._said = True
        _LOG.warning(
            "rollout %s of task %s: model '%s' returned no token ids, so its answers can't be "
            "trained. Use a backend that returns token ids (vllm, vllm_tokens, sglang or a "
            "TokenBackend)",
            rollout.id,
            rollout.task.id,
            call.model,
        )


def _lacks_tokens(call: pb.ModelCallCompleted) -> bool:
    sampled = call.trainable and not call.side_call and len(call.response.output) > 0
    return sampled and not call.tokens.output_token_ids
