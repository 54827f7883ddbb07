"""How many tokens of a rollout were sampled, and how. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import constrained_stretches
from gymmesh_responses import TOKEN_BYTES
from gymmesh_trainers.rollouts.samples import TrainingSample


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Output tokens of a rollout's model calls, as far as the engine returned token ids.

    Attributes:
        sampled: tokens that the policy sampled freely, in calls of the conversation.
        trained: the tokens among `sampled` that the samples train. Fewer only if a prompt differs
            from the earlier tokens (`allow_token_divergence`).
        forced: tokens of the same calls that were inserted without a choice.
        grammar: tokens of the same calls for which a grammar or schema allowed only some tokens.
        side: tokens of calls beside the conversation, such as a title.
        frozen: tokens of models that are not trained: judges, user simulators, frozen actors.
    """

    sampled: int = 0
    trained: int = 0
    forced: int = 0
    grammar: int = 0
    side: int = 0
    frozen: int = 0

    @classmethod
    def of(cls, rollout: pb.Rollout, samples: Sequence[TrainingSample]) -> TokenCounts:
        """samples: all samples of the rollout."""
        sampled = forced = grammar = side = frozen = 0
        for call in rollout.model_calls:
            count = len(call.tokens.output_token_ids) // TOKEN_BYTES
            if not call.trainable:
                frozen += count
            elif call.side_call:
                side += count
            else:
                stretches = constrained_stretches(call.tokens.constrained, count)
                bound = sum(end - first for first, end, _ in stretches)
                mine = sum(
                    end - first
                    for first, end, span in stretches
                    if span.constraint == tokens_pb2.CONSTRAINT_GRAMMAR
                )
                sampled, grammar, forced = (
                    sampled + count - bound, grammar + mine, forced + bound - mine,
                )  # fmt: skip
        trained = sum(sample.trained for sample in samples)
        return cls(sampled, trained, forced, grammar, side, frozen)
