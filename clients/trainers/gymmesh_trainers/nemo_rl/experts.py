"""Routed experts in rows for NeMo RL, which replays them (`policy.router_replay`). Pure, but for
reading side data.

NeMo RL reads `routed_experts` beside the tokens of a model call: a row of [layers, experts] for
each token of its prompt and answer. NeMo Gym passes them on as one text, which NeMo RL's
`routed_experts_codec` defines: `nrlre1:<type>:<tokens>x<layers>x<experts>:<base64>`, of `int8`,
`int16` or `int32`, with -1 where there is no expert.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_trainers.hooks import ROUTED_EXPERTS, experts_of
from gymmesh_trainers.rollouts import Rollout, SampleSideData

Json = dict[str, Any]

_SIGNED: Final = {
    "int8": "int8", "uint8": "int16", "int16": "int16", "uint16": "int32", "int32": "int32",
}  # fmt: skip


def put_experts(rollout: Rollout, items: Sequence[Json]) -> None:
    """Put routed experts into the items of one chain, where the rollout has them. Blocks.

    items: those with tokens, in order. Raises UserError for experts that are not whole, and
    SideDataUnreadable.
    """
    last = items[-1]
    tokens = [*last["prompt_token_ids"], *last["generation_token_ids"]]
    for sample in rollout.samples:
        if sample.tokens != tokens:
            continue
        experts = experts_of(rollout, sample)
        if experts is not None:
            for item in items:
                end = len(item["prompt_token_ids"]) + len(item["generation_token_ids"])
                item[ROUTED_EXPERTS] = _envelope(experts, end)
        return
    if any(call.tokens.side_data for call in rollout.message.model_calls):
        raise UserError(f"rollout {rollout.id}: no sample has the tokens of NeMo RL's chain")


def _envelope(experts: SampleSideData, end: int) -> str:
    signed = _SIGNED.get(experts.dtype)
    if signed is None or len(experts.shape) != 2:
        raise UserError(
            "routed experts must be integers of the shape [layers, experts], not "
            f"{experts.dtype} of the shape {list(experts.shape)}"
        )
    rows = experts.array(0, end, fill=0).astype(signed)
    for low, high in experts.missing:
        rows[min(low, end) : min(high, end)] = -1
    shape = "x".join(map(str, rows.shape))
    return f"nrlre1:{signed}:{shape}:{base64.b64encode(rows.tobytes()).decode()}"
