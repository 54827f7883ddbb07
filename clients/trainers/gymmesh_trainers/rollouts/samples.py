"""A rollout's exact tokens as training samples. Pure.

The model calls of a rollout form a tree: each continues the tokens of its parent, or begins anew
where the history was rewritten (a fork). Each actor has paths of its own, since it may have a
reward of its own: one sample for each path of its calls from a first to a last one, in which the
tokens of others are context. Where paths share a beginning, its sampled tokens are trained in the
first of them only: in the others they are context, too.

A sample is a view of the tree (token_tree.py): its lists are made when they are read, so that what
paths share is stored once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import unpack_ids, unpack_logprobs
from gymmesh_trainers.rollouts.side_data import SampleSideData, side_data_of
from gymmesh_trainers.rollouts.token_tree import CallNode, PartReward, leaves, token_tree

_LOG: Final = logging.getLogger("gymmesh.trainers")

NO_VERSION: Final = -1
"""Stands where no weights sampled the token, or their version is not known."""


@dataclass(frozen=True, slots=True)
class SampleTurn:
    """A model call within a sample.

    Attributes:
        call_id: the call's id.
        actor: the actor that called; empty for the root agent.
        begin: the position of the first sampled token.
        end: the position after the last sampled token.
        trained: whether this sample trains the call's tokens.
        reward: the sum of the rewards of the environment's turn and tool calls that follow the
            call, and of the verdict's spans that end in it; None: there are none. The rollout's
            own reward is not included.
    """

    call_id: str
    actor: str
    begin: int
    end: int
    trained: bool
    reward: float | None


class TrainingSample:
    """One sequence to train on. All lists are as long as `tokens`, and are built at each access."""

    __slots__ = ("_folders", "_leaf", "_parts")

    def __init__(
        self,
        leaf: CallNode,
        parts: Sequence[CallNode] | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """leaf: the path's last call. parts: the leaves of all paths that this sample trains, the
        leaf's included; None: its own path only. folders: where side data is looked for, after the
        place that its reference names.
        """
        self._leaf = leaf
        self._parts = (leaf,) if parts is None else tuple(parts)
        self._folders = folders

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrainingSample):
            return NotImplemented
        return self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]  # equal by what the lists hold

    def __repr__(self) -> str:
        return f"<TrainingSample of {self.actor!r}: {len(self)} tokens, {self.trained} trained>"

    def __len__(self) -> int:
        return self._leaf.end

    @property
    def tokens(self) -> list[int]:
        """The token ids that the model read and wrote, in order."""
        return unpack_ids(self._leaf.tokens())

    @property
    def mask(self) -> list[int]:
        """1 for an id that the policy sampled freely and that this sample trains, otherwise 0.
        Context is 0: the output of frozen models, and tokens that were forced or bound by a
        grammar.
        """
        mask = [0] * len(self)
        for node in self._trained():
            for begin, end in node.free():
                mask[begin:end] = [1] * (end - begin)
        return mask

    @property
    def trained(self) -> int:
        """How many tokens this sample trains: the sum of `mask`."""
        return sum(end - begin for node in self._trained() for begin, end in node.free())

    @property
    def logprobs(self) -> list[float]:
        """The log probability of each sampled id, as it was sampled; 0.0 for other ids. Empty if
        the engine returned none, if one is not finite, or if they are of several distributions: a
        trainer could not compare them with new log probabilities.
        """
        if len(self._distributions()) > 1:
            _warn_mixed()
            return []
        found = [0.0] * len(self)
        for node in self._calls():
            if not node.learned:
                continue
            known = _logprobs(node)
            if known is None:
                return []
            found[node.begin : node.end] = known
        return found

    @property
    def logprob_distribution(self) -> tokens_pb2.LogprobDistribution.ValueType:
        """The distribution of `logprobs`; unspecified if it is not known, or if the sample's calls
        have log probabilities of several distributions.
        """
        found = self._distributions()
        return found.pop() if len(found) == 1 else tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED

    @property
    def weights_versions(self) -> list[int]:
        """The version of the weights that sampled each id. NO_VERSION for ids that were not
        sampled, and for ids that were sampled before a version was announced.
        """
        found = [NO_VERSION] * len(self)
        for node in self._calls():
            if node.learned:
                found[node.begin : node.end] = _versions(node.call.tokens.weights, node.sampled)
        return found

    @property
    def rewards(self) -> list[float]:
        """The rewards of turns, tool calls and spans that this sample trains, each at the last
        token of its part; 0.0 for other tokens. The rollout's own reward is not in this list.
        """
        found = [0.0] * len(self)
        for node in self._trained():
            for end, value in node.credits:
                behind = node.sampled if end is None else min(end, node.sampled)
                found[max(node.begin + behind - 1, 0)] += value
        return found

    @property
    def turns(self) -> list[SampleTurn]:
        """The model calls on this path, in order."""
        trained = {id(node) for node in self._trained()}
        return [
            SampleTurn(
                node.call.call_id,
                node.call.actor,
                node.begin,
                node.end,
                id(node) in trained and node.learned,
                math.fsum(value for _, value in node.credits) if node.credits else None,
            )
            for node in self._calls()
        ]

    @property
    def side_data(self) -> Mapping[str, SampleSideData]:
        """Tensors that accompany the tokens, by name, such as `routed_experts`; read on demand.
        Empty if none was captured. Raises ValueError if calls disagree on a type or shape.
        """
        return side_data_of(self._leaf, self._folders)

    @property
    def actor(self) -> str:
        """The actor that called the model; empty for the root agent."""
        return self._leaf.call.actor

    @property
    def prompt_length(self) -> int:
        """How many tokens the path's first call read: the prompt."""
        return min(part.path()[0].begin for part in self._parts)

    @property
    def prompt_ids(self) -> list[int]:
        """The tokens before the model first spoke."""
        return self.tokens[: self.prompt_length]

    @property
    def completion_ids(self) -> list[int]:
        """The tokens after the prompt: those of the model and of the environment."""
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
    def completion_rewards(self) -> list[float]:
        """The rewards at `completion_ids`."""
        return self.rewards[self.prompt_length :]

    @property
    def labels(self) -> list[int]:
        """`tokens` where the mask is 1, otherwise -100, which trainers exclude from the loss."""
        return [one if on else -100 for one, on in zip(self.tokens, self.mask, strict=True)]

    def with_beginning(self, earlier: TrainingSample) -> TrainingSample | None:
        """This sample, which then also trains the tokens that `earlier` trains. None if that would
        lose tokens: the tokens of `earlier` are not the beginning of this sample's prompt, or both
        train the same positions.
        """
        if earlier._leaf.end > self.prompt_length:
            return None
        if not self._leaf.tokens().startswith(earlier._leaf.tokens()):
            return None
        return TrainingSample(self._leaf, (*earlier._parts, *self._parts), self._folders)

    def holds(self, other: TrainingSample) -> bool:
        """Whether this sample trains all tokens that the other sample trains."""
        parts = {id(part) for part in self._parts}
        return all(id(part) in parts for part in other._parts)

    def _calls(self) -> list[CallNode]:
        """The calls of the actors that are trained here, in the order of their positions."""
        found = {id(node): node for part in self._parts for node in part.path()}
        return sorted(found.values(), key=lambda node: node.begin)

    def _distributions(self) -> set[tokens_pb2.LogprobDistribution.ValueType]:
        """Those of the log probabilities that the calls trained here have."""
        return {
            node.call.tokens.logprob_distribution
            for node in self._trained()
            if node.call.tokens.logprobs and node.free()
        }

    def _trained(self) -> list[CallNode]:
        parts = {id(part) for part in self._parts}
        return [node for node in self._calls() if id(node.leaf) in parts]

    def _compared(self) -> tuple[object, ...]:
        return (
            self.actor, self.prompt_length, self._leaf.tokens(), self.mask, self.logprobs,
            self.weights_versions, self.rewards,
        )  # fmt: skip


def samples_of(
    calls: Iterable[pb.ModelCallCompleted],
    credits: Mapping[str, Sequence[PartReward]] | None = None,
    folders: Sequence[Path] = (),
) -> list[TrainingSample]:
    """The samples of a rollout's model calls, in the order in which the paths end.

    Some calls have no sample: calls without tokens, and calls whose prompt differs from the earlier
    tokens (a violation of the exact-token law that the run allowed). A path without trainable
    tokens has no sample, either.

    credits: rewards of parts of calls, by call id; see credits.py. folders: see TrainingSample.
    """
    return [TrainingSample(leaf, folders=folders) for leaf in leaves(token_tree(calls, credits))]


def merged(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """The fewest samples that train the same tokens. If a later sample's prompt begins with the
    tokens of an earlier sample, both become one sample. Only for samples with the same reward.
    """
    found: list[TrainingSample] = []
    for sample in samples:
        kept = []
        for earlier in found:
            both = sample.with_beginning(earlier)
            if both is None:
                kept.append(earlier)
            else:
                sample = both
        found = [*kept, sample]
    return found


@cache
def _warn_mixed() -> None:
    """Say once why samples are without log probabilities."""
    _LOG.warning(
        "log probabilities of a sample were dropped: its model calls report different "
        "distributions (SAMPLING, RAW or unspecified), and an importance ratio can't mix them. "
        "Configure the engine to report one distribution"
    )


def _logprobs(node: CallNode) -> list[float] | None:
    """Of each sampled id of a call; None where they are not all known."""
    packed = node.call.tokens.logprobs
    if len(packed) != len(node.call.tokens.output_token_ids):
        return None
    known = unpack_logprobs(packed)
    return known if math.isfinite(sum(known)) else None


def _versions(spans: Sequence[tokens_pb2.WeightsSpan], count: int) -> list[int]:
    """The version by token; of spans that are not in order the last one that covers it."""
    versions = [NO_VERSION] * count
    for span in spans:
        begin = min(span.first_token, count)
        versions[begin:] = [span.version] * (count - begin)
    return versions
