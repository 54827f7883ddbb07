"""A rollout's exact tokens as training samples. Pure.

The model calls of a rollout form a tree: each continues the tokens of its parent, or begins anew
where the history was rewritten (a fork) or another actor speaks. There is one sample for each
path from a root to a leaf. Where paths share a beginning, its sampled tokens are trained in the
first of them only: in the others they are context. Nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import CallTokens, call_tokens
from gymmesh_responses import TOKEN_BYTES, unpack_ids, unpack_logprobs

NO_VERSION: Final = -1
"""Stands where no weights sampled the token, or their version is not known."""


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """One sequence to train on. All lists are as long as `tokens`.

    Attributes:
        tokens: what the model read and wrote, in order.
        mask: 1 where an id was sampled by the policy and is to be trained in this sample, else 0.
        logprobs: of each sampled id, as it was sampled; 0.0 elsewhere. Empty where the engine
            gave none.
        weights_versions: of the weights that sampled the id; NO_VERSION elsewhere.
        actor: the actor that spoke; empty for the root agent.
        prompt_length: how many tokens the path's first call read: the prompt.
    """

    tokens: list[int]
    mask: list[int]
    logprobs: list[float]
    weights_versions: list[int]
    actor: str
    prompt_length: int

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the model first spoke."""
        return self.tokens[: self.prompt_length]

    @property
    def completion_ids(self) -> list[int]:
        """The tokens after these: the model's and the environment's."""
        return self.tokens[self.prompt_length :]

    @property
    def completion_mask(self) -> list[int]:
        """The mask of `completion_ids`."""
        return self.mask[self.prompt_length :]

    @property
    def completion_logprobs(self) -> list[float]:
        """The log probabilities of `completion_ids`; empty where the engine gave none."""
        return self.logprobs[self.prompt_length :]

    @property
    def labels(self) -> list[int]:
        """`tokens` where the mask is 1, else -100, which trainers leave out of the loss."""
        return [one if on else -100 for one, on in zip(self.tokens, self.mask, strict=True)]


def samples_of(calls: Iterable[pb.ModelCallCompleted]) -> list[TrainingSample]:
    """The samples of a rollout's model calls, in the order in which the paths end.

    Calls without tokens make none, nor do those whose prompt cannot be put together (a violation
    of the exact-token law that the run allowed).
    """
    known = {call.call_id: call for call in calls}
    tokens = {
        name: found
        for name, found in call_tokens(known.values()).items()
        if found.prompt is not None
    }
    parents = {name: _parent(known[name], tokens) for name in tokens}
    continued = set(parents.values())
    trained: set[str] = set()
    samples = []
    for name in tokens:
        if name in continued:
            continue
        path = _path(name, parents)
        if any(known[one].trainable and one not in trained for one in path):
            samples.append(_sample([known[one] for one in path], tokens, trained))
            trained.update(path)
    return samples


def _parent(call: pb.ModelCallCompleted, tokens: dict[str, CallTokens]) -> str:
    """The call whose tokens this one's prompt begins with; empty for a root."""
    parent = tokens.get(call.parent_call_id)
    if parent is None or call.detached or call.tokens.HasField("fork"):
        return ""
    prompt, before = tokens[call.call_id].prompt, parent.prompt
    assert prompt is not None  # only such are here
    assert before is not None
    return call.parent_call_id if prompt.startswith(before + parent.output) else ""


def _path(leaf: str, parents: dict[str, str]) -> list[str]:
    """The calls from the root to a leaf."""
    path = [leaf]
    while parents[path[-1]]:
        path.append(parents[path[-1]])
    return path[::-1]


def _sample(
    path: Sequence[pb.ModelCallCompleted], tokens: dict[str, CallTokens], trained: set[str]
) -> TrainingSample:
    ends = [_end(tokens[call.call_id]) for call in path]
    last = tokens[path[-1].call_id]
    ids = unpack_ids((last.prompt or b"") + last.output)
    mask, logprobs, versions = [0] * len(ids), [0.0] * len(ids), [NO_VERSION] * len(ids)
    captured = True
    for call, end in zip(path, ends, strict=True):
        found = tokens[call.call_id]
        count = len(found.output) // TOKEN_BYTES
        begin = end - count
        versions[begin:end] = _versions(call.tokens.weights, count)
        if len(found.logprobs) == len(found.output):
            logprobs[begin:end] = unpack_logprobs(found.logprobs)
        elif call.trainable:
            captured = False
        if call.trainable and call.call_id not in trained:
            mask[begin:end] = [1] * count
    first = len(tokens[path[0].call_id].prompt or b"") // TOKEN_BYTES
    return TrainingSample(ids, mask, logprobs if captured else [], versions, path[0].actor, first)


def _end(tokens: CallTokens) -> int:
    return (len(tokens.prompt or b"") + len(tokens.output)) // TOKEN_BYTES


def _versions(spans: Sequence[tokens_pb2.WeightsSpan], count: int) -> list[int]:
    if not spans:
        return [NO_VERSION] * count
    ends = [*(span.first_token for span in spans), count]
    versions: list[int] = []
    for span, (begin, end) in zip(spans, pairwise(ends), strict=True):
        versions += [span.version] * (min(end, count) - min(begin, count))
    return versions
