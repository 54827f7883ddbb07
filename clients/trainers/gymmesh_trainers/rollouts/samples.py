"""A rollout's exact tokens as training samples. Pure.

The model calls of a rollout form a tree: each continues the tokens of its parent, or begins anew
where the history was rewritten (a fork). Each actor has paths of its own, since it may have a
reward of its own: one sample for each path of its calls from a first to a last one, in which the
tokens of others are context. Where paths share a beginning, its sampled tokens are trained in the
first of them only: in the others they are context, too. Nothing is tokenised again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        mask: 1 where an id was sampled by the policy and is to be trained in this sample, else 0:
            what a frozen model said is context.
        logprobs: of each sampled id, as it was sampled; 0.0 elsewhere. Empty where the engine
            gave none, or one that is not finite: there is nothing to compare a new one with.
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
        """The log probabilities of `completion_ids`; empty where `logprobs` are."""
        return self.logprobs[self.prompt_length :]

    @property
    def labels(self) -> list[int]:
        """`tokens` where the mask is 1, else -100, which trainers leave out of the loss."""
        return [one if on else -100 for one, on in zip(self.tokens, self.mask, strict=True)]


def samples_of(calls: Iterable[pb.ModelCallCompleted]) -> list[TrainingSample]:
    """The samples of a rollout's model calls, in the order in which the paths end.

    Calls without tokens make none, nor do those whose prompt cannot be put together (a violation
    of the exact-token law that the run allowed). A path with nothing to train makes none.
    """
    known = {call.call_id: call for call in calls}
    tokens = {
        name: found
        for name, found in call_tokens(known.values()).items()
        if found.prompt is not None
    }
    parents = {name: _parent(known[name], known, tokens) for name in tokens}
    continued = set(parents.values())
    trained: set[str] = set()
    samples = []
    for name in tokens:
        if name in continued:
            continue
        path = _path(name, parents)
        if any(known[one].trainable and one not in trained and tokens[one].output for one in path):
            samples.append(_sample([known[one] for one in path], tokens, trained))
            trained.update(path)
    return samples


def _parent(
    call: pb.ModelCallCompleted,
    known: Mapping[str, pb.ModelCallCompleted],
    tokens: Mapping[str, CallTokens],
) -> str:
    """The actor's last call before this one whose tokens its prompt begins with; empty for a root.

    The calls of others may stand between them.
    """
    prompt, above = tokens[call.call_id].prompt, call
    assert prompt is not None  # only such are here
    for _ in tokens:  # parents that go in a circle end, too
        parent = tokens.get(above.parent_call_id)
        if parent is None or above.detached or above.tokens.HasField("fork"):
            return ""
        assert parent.prompt is not None
        if not prompt.startswith(parent.prompt + parent.output):
            return ""
        above = known[above.parent_call_id]
        if above.actor == call.actor:
            return above.call_id
    return ""


def _path(leaf: str, parents: dict[str, str]) -> list[str]:
    """The calls from the root to a leaf."""
    path = [leaf]
    while parents[path[-1]]:
        path.append(parents[path[-1]])
    return path[::-1]


def _sample(
    path: Sequence[pb.ModelCallCompleted], tokens: dict[str, CallTokens], trained: set[str]
) -> TrainingSample:
    last = tokens[path[-1].call_id]
    ids = unpack_ids((last.prompt or b"") + last.output)
    mask, logprobs, versions = [0] * len(ids), [0.0] * len(ids), [NO_VERSION] * len(ids)
    captured = True
    for call in path:
        if not call.trainable:
            continue  # read, as a prompt is
        found = tokens[call.call_id]
        count = len(found.output) // TOKEN_BYTES
        end = (len(found.prompt or b"") + len(found.output)) // TOKEN_BYTES
        begin = end - count
        versions[begin:end] = _versions(call.tokens.weights, count)
        known = unpack_logprobs(found.logprobs) if len(found.logprobs) == len(found.output) else []
        if len(known) == count and math.isfinite(sum(known)):
            logprobs[begin:end] = known
        else:
            captured = False
        if call.call_id not in trained:
            mask[begin:end] = [1] * count
    first = len(tokens[path[0].call_id].prompt or b"") // TOKEN_BYTES
    return TrainingSample(ids, mask, logprobs if captured else [], versions, path[0].actor, first)


def _versions(spans: Sequence[tokens_pb2.WeightsSpan], count: int) -> list[int]:
    """The version by token; of spans that are not in order the last one that covers it."""
    versions = [NO_VERSION] * count
    for span in spans:
        begin = min(span.first_token, count)
        versions[begin:] = [span.version] * (count - begin)
    return versions
