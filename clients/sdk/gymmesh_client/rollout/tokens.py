"""The tokens of a rollout's model calls, joined from the events. Pure.

Events have each token once: a call's prompt is a number of leading tokens of the previous call,
plus the new tokens. This module restores the whole prompts, as bytes (int32 and float32,
little-endian).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class CallTokens:
    """The tokens of one model call."""

    # All ids that the model read; None when they cannot be put together (a violation of the
    # exact-token law that the run allowed).
    prompt: bytes | None
    output: bytes  # the ids that it sampled
    logprobs: bytes  # of each of them; empty when not captured


def call_tokens(calls: Iterable[pb.ModelCallCompleted]) -> dict[str, CallTokens]:
    """The tokens of each model call that has some, by call_id."""
    found: dict[str, CallTokens] = {}
    for call in calls:
        said = call.tokens
        if not (said.output_token_ids or said.prompt_token_ids):
            continue
        parent = None if call.detached else found.get(call.parent_call_id)
        found[call.call_id] = CallTokens(
            _prompt(said, parent), said.output_token_ids, said.logprobs
        )
    return found


def _prompt(said: tokens_pb2.TokenCapture, parent: CallTokens | None) -> bytes | None:
    size = said.prompt_prefix_tokens * TOKEN_BYTES
    if not size:
        return said.prompt_token_ids
    if parent is None or parent.prompt is None:
        return None
    before = parent.prompt + parent.output
    return before[:size] + said.prompt_token_ids if size <= len(before) else None
