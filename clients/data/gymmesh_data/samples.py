"""The exact tokens of a rollout as training samples. Pure.

For each model call, a row has the ids that the call read in addition to those of the previous call,
the ids that it sampled, and their log probabilities. Nothing is tokenised again: a sample is made
from these ids only, in linear time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import msgspec
from msgspec import UNSET

from gymmesh_client import UserError
from gymmesh_client.rollout import free_stretches
from gymmesh_data.rollout import StoredRollout
from gymmesh_rows import ModelCall, TokenCapture

_UNTRAINED: Final = -100


class NoTokens(UserError):
    """A rollout has no token ids, so it makes no sample. `why`: the reason for reports."""

    why: ClassVar[str] = "rollouts without token ids"


class NoSequence(NoTokens):
    """The ids that a call read are unknown, or continue tokens that are not there."""

    why = "token ids that do not form one sequence"


class NoneFree(NoTokens):
    """No token was sampled freely by the policy."""

    why = "token ids of which none was sampled freely"


@dataclass(slots=True)
class Sample:
    """One sequence to train on.

    Attributes:
        input_ids: the ids that the model read and wrote, in order.
        mask: of equal length; 1 for an id that the policy sampled freely, which is to be trained,
            else 0. Ids that were forced or restricted by a grammar have 0, and ids of side calls,
            too.
        logprobs: of equal length; the log probability of each sampled id at sampling time, 0.0 for
            other ids. Empty if log probabilities were not captured, or one is not finite.
        labels: `input_ids` where the mask is 1, else -100, which trainers exclude from the loss.
    """

    input_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    labels: list[int] = field(default_factory=list, compare=False)


def samples_of(rollout: StoredRollout) -> list[Sample]:
    """The samples of a rollout: one, plus one for each fork (a call whose history was rewritten). A
    conversation that the agent abandoned (for example to start again with a summary) has its own
    sample. Samples are in the order in which the conversations ended. Each freely sampled id is
    trained in exactly one
    sample, and each sample has at least one.

    Raises:
        NoTokens: the row has no token ids to train (NoneFree: only ids that were not sampled
            freely), or the prompt ids of a call are unknown (NoSequence).
        UserError: the calls do not form a tree.
    """
    written = [_written(one) for one in _conversations(rollout)]
    samples = [sample for writer in written for sample in writer.trained()]
    if samples:
        return samples
    if any(writer.samples for writer in written):
        raise NoneFree(
            f"{rollout.where}: {rollout.output_key}: has no freely sampled policy token: "
            "all tokens are from side calls, forced, or restricted by a grammar"
        )
    raise NoTokens(
        f"{rollout.where}: {rollout.output_key}: has no generation_token_ids. Collect with a "
        "backend that captures tokens"
    )


def _conversations(rollout: StoredRollout) -> Iterator[StoredRollout]:
    """An actor's conversation, or all of the root agent's; what several share belongs to the first
    of them.
    """
    paths = [] if rollout.spoken is not None else rollout.agent_paths
    if len(paths) < 2:
        yield rollout
        return
    told = set[str]()
    for path in paths:
        yield msgspec.structs.replace(rollout, calls=path, told=frozenset(told))
        told.update(call.call_id for call in path)


def _written(rollout: StoredRollout) -> _SampleWriter:
    """The samples of one conversation. Raises NoSequence."""
    writer = _SampleWriter()
    for one in token_reads(rollout):
        writer.keep(one.shared)
        tokens = rollout.tokens_of(one.call)
        if tokens is None:
            continue
        if one.prompt_length is None:
            raise NoSequence(
                f"{rollout.where}: call {one.call.call_id}: has generation_token_ids but no "
                "prompt_token_ids. This violates the exact-token rule, so there is no sequence to "
                "train on"
            )
        writer.add(one, tokens)
    return writer


class TokenRead(NamedTuple):
    """The tokens that a model call read.

    Attributes:
        prompt_length: the number of tokens that the call read; None: unknown.
        held: the number of tokens read and sampled before the call.
        shared: how many of these tokens the call's prompt begins with; 0 if unknown.
        known: the tokens that the call read, followed by those that it sampled; valid until the
            next call.
    """

    call: ModelCall
    prompt_length: int | None
    held: int
    shared: int
    known: list[int]


def token_reads(rollout: StoredRollout) -> Iterator[TokenRead]:
    """The tokens that each call of the conversation read, joined from the tokens of all earlier
    calls.
    """
    before = _before(rollout)
    known: list[int] = []
    whole = False  # whether `known` is all that there is up to here
    for number, call in enumerate(before + rollout.calls):
        tokens, held = call.tokens, len(known)
        if tokens is UNSET:
            whole = False
            continue
        prefix = tokens.prompt_prefix_tokens
        whole = not prefix or (whole and prefix <= held)
        length, shared = None, 0
        if whole:
            shared = prefix + _common(known, prefix, tokens.prompt_token_ids)
            known[prefix:] = tokens.prompt_token_ids
            length = len(known)
            known += tokens.output_token_ids
        if number >= len(before):
            yield TokenRead(call, length, held, shared, known)


def _before(rollout: StoredRollout) -> list[ModelCall]:
    """The calls that the first one of an actor's conversation goes on from."""
    if rollout.spoken is None or not rollout.calls:
        return []
    return rollout.columns.path(rollout.calls[0])[:-1]


def _common(known: list[int], begins: int, added: list[int]) -> int:
    """How many of the ids added are those that stood there."""
    most = min(len(known) - begins, len(added))
    if known[begins : begins + most] == added[:most]:
        return most
    return next(n for n in range(most) if known[begins + n] != added[n])


class _SampleWriter:
    """Puts the tokens of calls together.

    Attributes:
        samples: those so far.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        # Of each sample, whether any of its ids is to be trained.
        self._trains: list[bool] = []
        # Whether each call had a log probability for each of its ids.
        self._captured = True
        # How many ids of the last sample the calls since then still began with.
        self._kept = 0

    def trained(self) -> list[Sample]:
        """The samples with at least one trained id. A sample with unknown log probabilities has
        none.
        """
        found = [one for one, trains in zip(self.samples, self._trains, strict=True) if trains]
        if not self._captured:
            for sample in found:
                sample.logprobs = []
        return found

    def keep(self, shared: int) -> None:
        """Note how many ids a call shares with the ids before the call."""
        self._kept = min(self._kept, shared)

    def add(self, one: TokenRead, tokens: TokenCapture) -> None:
        """Append a call's tokens to the last sample, or to a new sample if they do not continue the
        last one.
        """
        held = len(self.samples[-1].input_ids) if self.samples else 0
        if not held or self._kept < held:
            self.samples.append(Sample())
            self._trains.append(False)
            held = 0
        sampled = tokens.output_token_ids
        read = one.known[held : one.prompt_length]
        logprobs = [each for each in tokens.logprobs if each is not None]
        if len(logprobs) != len(sampled):
            logprobs = []  # one that is not finite: there is nothing to compare a new one with
        side, count = one.call.side_call, len(sampled)
        free = [] if side else free_stretches(tokens.constrained, count)
        self._extend(read, sampled, logprobs, free)
        self._kept = len(one.known)

    def _extend(
        self,
        read: list[int],
        sampled: list[int],
        logprobs: list[float],
        free: list[tuple[int, int]],
    ) -> None:
        sample = self.samples[-1]
        begins = len(sample.input_ids) + len(read)
        sample.input_ids += read
        sample.input_ids += sampled
        sample.mask += [0] * (len(read) + len(sampled))
        sample.labels += [_UNTRAINED] * (len(read) + len(sampled))
        for first, end in free:
            sample.mask[begins + first : begins + end] = [1] * (end - first)
            sample.labels[begins + first : begins + end] = sampled[first:end]
        sample.logprobs += [0.0] * len(read)
        sample.logprobs += logprobs
        if free:
            self._trains[-1] = True
        if len(logprobs) != len(sampled):
            self._captured = False
