"""The declaration of a format: how a rollout, a pair or a task becomes records, then a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from gymmesh_client.means import mean_of
from gymmesh_data.actors import Actor, actors_of
from gymmesh_data.conversation import ChatStyle, Conversation, conversation_of
from gymmesh_data.pairs import Pair
from gymmesh_data.rollout import Json, StoredRollout
from gymmesh_data.samples import NoSequence, NoTokens, Sample, samples_of
from gymmesh_runtime.extras import Extra

TEMPLATE_STYLE: Final = ChatStyle(arguments_as_objects=True)
"""Messages as chat templates take them."""
_NO_LOGPROBS: Final = "log probabilities of samples (unknown for at least one token)"


class TokenPlace(Enum):
    """Whether a format can store token ids, masks, log probabilities and weights versions."""

    NONE = "none"
    BESIDE = "next to the text of the main conversation, if the rollout has token ids"
    SAMPLES = "samples next to the text, also of conversations that the agent abandoned"
    ONLY = "the records consist of token ids"


@dataclass(slots=True)
class Taken:
    """A selected rollout with its messages in the style of the format. `with_tokens`: whether to
    export token ids.
    """

    rollout: StoredRollout
    said: Conversation
    with_tokens: bool = True
    style: ChatStyle = field(default_factory=ChatStyle)
    # Of the calls whose tokens were given, by their ids: how many each read and sampled.
    _given: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def exact_samples(self) -> list[Sample]:
        """The rollout's training samples. Samples without log probabilities are counted as losses.
        Raises NoTokens, and UserError for lists that disagree.
        """
        found = samples_of(self.rollout)
        if bare := sum(not one.logprobs for one in found):
            self.said.losses[_NO_LOGPROBS] += bare
        return found

    def samples(self) -> list[Json]:
        """The rollout's exact tokens: `input_ids`, `mask` and `logprobs`. Empty if token ids are
        not requested, were not captured, or form no sequence. Raises UserError for lists that
        disagree.
        """
        if not self.with_tokens:
            return []
        try:
            return [
                {"input_ids": one.input_ids, "mask": one.mask, "logprobs": one.logprobs}
                for one in self.exact_samples()
            ]
        except NoTokens as error:
            if self.rollout.has_tokens:
                self.said.losses[error.why] += 1
            return []

    def of_actors(self) -> Iterator[tuple[Actor, list[Taken]]]:
        """The actors other than the root agent, each with its conversations.

        Raises UserError for items without the form of their type. Elements that messages can't
        represent are counted as the rollout's losses.
        """
        for actor in actors_of(self.rollout):
            found = []
            for one in actor.conversations:
                said = conversation_of(one, self.style)
                self.said.losses += said.losses
                said.losses = self.said.losses
                self.said.changed += said.changed
                # It may be asked for its first answer in its own conversation.
                while said.prompt_length < len(said.messages) and (
                    said.messages[said.prompt_length]["role"] != "assistant"
                ):
                    said.prompt_length += 1
                found.append(Taken(one, said, self.with_tokens, self.style))
            yield actor, found

    def call_tokens(self, place: int) -> AddedTokens | None:
        """The token ids that a message's model call added to those of the previous call. Call this
        in the order of the messages. None if token ids are not requested or were not captured.
        place: the message's index.
        """
        call = self.said.token_calls.get(place)
        if call is None or not self.with_tokens:
            return None
        tokens = self.rollout.tokens_of(call)
        if tokens is None:
            return None
        prefix, prompt = tokens.prompt_prefix_tokens, tokens.prompt_token_ids
        known = 0 if call.detached else self._given.get(call.parent_call_id, 0)
        if prefix > known:  # of a call whose tokens are not given
            whole = self.rollout.columns.prompt(call)
            if whole is None:
                self.said.losses[NoSequence.why] = 1  # once for each rollout
                return AddedTokens(0, None, tokens.output_token_ids, tokens.logprobs)
            prefix, prompt = 0, whole.tolist()
        self._given[call.call_id] = prefix + len(prompt) + len(tokens.output_token_ids)
        return AddedTokens(prefix, prompt, tokens.output_token_ids, tokens.logprobs)


class AddedTokens(NamedTuple):
    """The token ids that a model call added to those of the previous call. So the size of an
    exported rollout grows linearly with its calls, not quadratically.

    Attributes:
        prefix: how many leading tokens of the prompt are the leading tokens of the previous call
            (its prompt and samples). 0: the call starts a new conversation.
        prompt: the prompt tokens after `prefix`; None if unknown.
        logprobs: those of `sampled`; None for one that is not finite; empty: not captured.
    """

    prefix: int
    prompt: list[int] | None
    sampled: list[int]
    logprobs: list[float | None]


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Facts of a pair beside its messages. ids and rewards: the better rollout comes first."""

    task_id: str
    rollout_ids: tuple[str, str]
    rewards: tuple[float, float]
    tools: list[Json]


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The results of a task.

    Attributes:
        number: the task's index, from 0.
        rewards: the rewards of its judged rollouts, in their order.
        rollouts: the number of selected rollouts, judged or not.
        agent: the agent's name in the trainer's record; empty: the format's default.
    """

    number: int
    rewards: Sequence[float]
    rollouts: int
    agent: str = ""

    @property
    def mean_reward(self) -> float | None:
        """The mean over the judged rollouts; None if no rollout was judged."""
        return mean_of((reward, 1) for reward in self.rewards)


OfRollout: TypeAlias = Callable[[Taken], Iterator[Json]]
OfPair: TypeAlias = Callable[[Pair, PairFacts], Json]
# What is kept of a task's first rollout, and the record made of it when all have been read.
KeptOfTask: TypeAlias = Callable[[Taken], Json]
OfTask: TypeAlias = Callable[[Json, TaskFacts], Json]
# From the file of JSON lines to what the format is: a file or a folder that is not there yet.
Pack: TypeAlias = Callable[[Path, Path, Counter[str]], None]


@dataclass(frozen=True, slots=True)
class Format:
    """A format; exactly one of `of_rollout`, `of_pair` and `of_task` is set.

    Attributes:
        name: the name for `gym-cli export --format`.
        about: the purpose in a few words, for the command's help.
        style: how the format writes messages.
        demonstrations: whether the format is only for rollouts worth imitating.
        of_rollout: the records of a rollout. Raises NoTokens.
        of_pair: the record of a pair of rollouts of a task.
        of_task: the state kept for a task, and the function that makes the record from it.
        tokens: how the format stores token ids.
        pack: converts the JSON lines to the final file; None if the file is JSON lines.
        needs: the libraries that `pack` needs.
        suffixes: the file name suffixes of the format.
        actors: whether the format can represent conversations of actors other than the root agent.
    """

    name: str
    about: str
    style: ChatStyle = field(default_factory=ChatStyle)
    demonstrations: bool = False
    of_rollout: OfRollout | None = None
    of_pair: OfPair | None = None
    of_task: tuple[KeptOfTask, OfTask] | None = None
    tokens: TokenPlace = TokenPlace.NONE
    pack: Pack | None = None
    needs: Extra | None = None
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")
    actors: bool = False
