"""slime's samples of a rollout. Pure.

A sample is a prompt and a response with a mask. Those of one rollout share its `rollout_id`, by
which slime divides the loss, so that a rollout with three samples weighs as much as one with one.
Each sample has the reward of its actor.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import torch
from slime.utils.types import Sample

from gymmesh_client import UserError
from gymmesh_trainers.hooks import LostTokens, experts_of
from gymmesh_trainers.rollouts import (
    NO_VERSION,
    FailedRollout,
    Rollout,
    TrainingSample,
    merged,
)

FACTS: Final = "gymmesh"
"""The key of a sample's `metadata` with what `group_rewards` reads: `actor` and `trained`."""


def samples_of_all_actors(rollout: Rollout, lost: LostTokens) -> list[TrainingSample]:
    """All samples whose actor has a reward, each actor's merged where tokens allow.

    Raises UserError where sampled tokens would be lost and that is refused.
    """
    judged = [
        samples
        for actor, samples in rollout.by_actor.items()
        if rollout.reward_of(actor) is not None
    ]
    if not judged:
        return []  # no verdict: the hook hands over a sample that trains nothing
    kept = [sample for samples in judged for sample in merged(samples)]
    lost.account(rollout, sum(sample.trained for sample in kept), kept)
    return kept


def filled(
    given: Any, rollout: Rollout, sample: TrainingSample, tokenizer: Any, *, evaluation: bool
) -> Any:
    """A copy of slime's sample with a sample of the rollout.

    Raises UserError where it has no log probabilities to train with.
    """
    made = _copied(given, rollout, sample.actor, trained=not evaluation)
    made.tokens, made.response_length = sample.tokens, len(sample) - sample.prompt_length
    made.loss_mask = sample.completion_mask
    made.rollout_log_probs = sample.completion_logprobs
    if not made.rollout_log_probs:
        if not evaluation:
            raise UserError(
                f"rollout {rollout.id} of task {rollout.task.id}: the engine returned no usable "
                "log probabilities. slime needs a log probability for every sampled token"
            )
        made.rollout_log_probs = None
    made.response = tokenizer.decode(sample.completion_ids)
    experts = experts_of(rollout, sample)
    if experts is not None:
        made.rollout_routed_experts = experts.array(0, len(sample) - 1)
    made.weight_versions = list(dict.fromkeys(_versions(sample)))
    made.reward = rollout.reward_of(sample.actor)
    made.status = Sample.Status.TRUNCATED if rollout.truncated else Sample.Status.COMPLETED
    return made


def masked(
    given: Any,
    rollout: Rollout | FailedRollout,
    reward: float,
    stop: int,
    *,
    experts: tuple[int, int] | None = None,
) -> Any:
    """A copy of slime's sample that trains nothing, for a rollout that failed or has no reward.

    reward: that of its siblings, since slime wants a number. stop: any token. experts: the layers
    and experts per token, where slime replays experts and so wants some; None: it doesn't.
    """
    made = _copied(given, rollout, "", trained=False)
    made.tokens, made.response, made.response_length = [stop, stop], "", 1
    made.loss_mask, made.rollout_log_probs = [0], [0.0]
    made.reward, made.remove_sample, made.status = reward, True, Sample.Status.FAILED
    if experts is not None:
        layers, each = experts
        made.rollout_routed_experts = torch.arange(each, dtype=torch.int32).repeat(1, layers, 1)
    return made


def _copied(given: Any, rollout: Rollout | FailedRollout, actor: str, *, trained: bool) -> Any:
    made = deepcopy(given)
    made.rollout_id = given.index
    facts: dict[str, Any] = {"rollout_id": rollout.id, "actor": actor, "trained": trained}
    if isinstance(rollout, Rollout):
        facts |= {"stop_reason": rollout.stop_reason, "components": dict(rollout.components)}
    else:
        facts |= {"failed": f"{rollout.boundary}: {rollout.reason}: {rollout.why}"}
    made.metadata = {**(given.metadata or {}), FACTS: facts}
    return made


def _versions(sample: TrainingSample) -> Iterator[str]:
    for version, on in zip(sample.weights_versions, sample.mask, strict=True):
        if on and version != NO_VERSION:
            yield str(version)
