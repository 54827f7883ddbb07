"""What NeMo RL can train of a rollout: one chain of tokens and a reward. Pure.

NeMo RL reads the output items with `generation_token_ids` in order, and asserts that each prompt
begins with all tokens before it. So only calls that go on from one another can be in a row: those
of the root agent's last chain. Where a rollout has sampled more, or has tokens that were forced or
bound by a grammar, the row says how many sampled tokens are lost, and whether NeMo RL is to leave
the rollout out of its loss (`instance_config.mask_sample`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from gymmesh_client import UserError
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line
from gymmesh_rows import nemo_row, read_row
from gymmesh_trainers.hooks import ROUTED_EXPERTS, refuse_images
from gymmesh_trainers.nemo_rl.experts import put_experts
from gymmesh_trainers.rollouts import Rollout

Json = dict[str, Any]
Forks = Literal["mask", "train"]
"""A rollout with several chains: left out of the loss, or trained by its last chain."""

_TOKENS: Final = (
    "prompt_token_ids", "generation_token_ids", "generation_log_probs", ROUTED_EXPERTS,
)  # fmt: skip


class NotTrainable(ValueError):
    """The rollout has nothing that NeMo RL could read; the text says why."""


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """A row for NeMo RL.

    Attributes:
        row: the row.
        sampled: how many tokens the policy sampled freely in the rollout.
        trained: how many of them NeMo RL trains.
    """

    row: Json
    sampled: int
    trained: int


def whole_row(rollout: Rollout) -> Json:
    """The row of a completed rollout in NeMo Gym's form, with the tokens of all its calls."""
    line, _ = completed_line(rollout.task.message, RolloutParts.of(rollout.message))
    return nemo_row(read_row(line))


def trained_row(rollout: Rollout, forks: Forks = "mask") -> TrainedRow:
    """The row of a completed rollout that NeMo RL can read. Blocks where it has side data, which
    is read from files.

    Raises NotTrainable: no verdict, which is not a reward of 0, no tokens, or an image.
    """
    if rollout.reward is None:
        raise NotTrainable("the rollout has no verdict, and NeMo RL can't train without one")
    try:
        refuse_images(rollout, "NeMo RL")
    except UserError as error:
        raise NotTrainable(str(error)) from None
    row = whole_row(rollout)
    output = row["response"]["output"]
    kept = last_chain(output)
    for place, item in enumerate(output):
        if place not in kept and isinstance(item, Mapping):
            output[place] = {key: value for key, value in item.items() if key not in _TOKENS}
    handed = sum(len(output[place]["generation_token_ids"]) for place in kept)
    if not handed:
        raise NotTrainable("the rollout has no policy tokens, so there is nothing to train")
    for place in kept:
        _check_logprobs(output[place])
    try:
        put_experts(rollout, [output[place] for place in kept])
    except UserError as error:
        raise NotTrainable(str(error)) from None
    counts = rollout.counts
    sampled, bound = counts.sampled, counts.forced + counts.grammar
    # A row has no mask: tokens that were not sampled freely would be trained like all others.
    masked = bound > 0 or (handed < sampled and forks == "mask")
    trained = 0 if masked else handed
    # NeMo RL logs what else is a number.
    row |= {"sampled_tokens": sampled, "lost_tokens": sampled - trained}
    if masked:
        row["instance_config"] = {"mask_sample": True}
    return TrainedRow(row, sampled, trained)


def last_chain(output: Sequence[Any]) -> list[int]:
    """The places of the items whose tokens go on from one another, up to the last one."""
    chain: list[int] = []
    seen: list[int] = []
    for place, item in enumerate(output):
        if not isinstance(item, Mapping) or not item.get("generation_token_ids"):
            continue
        prompt = item.get("prompt_token_ids")
        if not isinstance(prompt, list):
            chain, seen = [], []
            continue
        if prompt[: len(seen)] != seen:
            chain = []
        chain.append(place)
        seen = prompt + item["generation_token_ids"]
    return chain


def _check_logprobs(item: Mapping[str, Any]) -> None:
    logprobs = item.get("generation_log_probs")
    if not isinstance(logprobs, list) or len(logprobs) != len(item["generation_token_ids"]):
        raise NotTrainable(
            "the policy's endpoint returned no log probabilities, which NeMo RL needs"
        )
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in logprobs):
        raise NotTrainable("a log probability of the policy is not a finite number")
