"""The tokens of a rollout's model calls, put together again from what the events carry. Pure.

Events hold each token once: a call's prompt is said as so many tokens of the call before it, and
what is new. Here the whole prompts come back, as bytes (int32 and float32, little-endian), and as
lists for rows, where trainers read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.boundaries import EnumNames
from gymmesh_responses import TOKEN_BYTES, JsonValue, token_problem, unpack_ids, unpack_logprobs

_FORK_REASONS: Final = EnumNames(tokens_pb2.ForkReason, "FORK_REASON_")


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


def token_fields(tokens: CallTokens) -> dict[str, JsonValue]:
    """As a row holds them, with the last item that the call wrote: NeMo Gym's three keys. A log
    probability that is not finite becomes null there. Raises ValueError for ids of a wrong length
    or sign.
    """
    problem = token_problem(tokens.prompt or b"") or token_problem(tokens.output)
    if problem:
        raise ValueError(f"tokens: {problem}")
    fields: dict[str, JsonValue] = {}
    if tokens.prompt is not None:
        fields["prompt_token_ids"] = unpack_ids(tokens.prompt)
    fields["generation_token_ids"] = unpack_ids(tokens.output)
    fields["generation_log_probs"] = unpack_logprobs(tokens.logprobs)
    return fields


def token_notes(calls: Iterable[pb.ModelCallCompleted]) -> dict[str, JsonValue]:
    """What a row's metadata says of the weights that wrote what is to be learned from, and of its
    forks; only what is.
    """
    versions: set[int] = set()
    forks: list[JsonValue] = []
    for call in calls:
        said = call.tokens
        if call.trainable:  # other models have versions of their own
            versions.update([span.version for span in said.weights])
        if said.HasField("fork"):
            fork = said.fork
            forks.append(
                {
                    "call_id": call.call_id,
                    "reason": _FORK_REASONS[fork.reason],
                    "common_tokens": fork.common_tokens,
                }
            )
    notes: dict[str, JsonValue] = {}
    if versions:
        notes["weights_versions"] = sorted(versions)
    if forks:
        notes["token_forks"] = forks
    return notes


def _prompt(said: tokens_pb2.TokenCapture, parent: CallTokens | None) -> bytes | None:
    size = said.prompt_prefix_tokens * TOKEN_BYTES
    if not size:
        return said.prompt_token_ids
    if parent is None or parent.prompt is None:
        return None
    before = parent.prompt + parent.output
    return before[:size] + said.prompt_token_ids if size <= len(before) else None
