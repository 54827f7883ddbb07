"""The exact tokens of a rollout as training samples. Pure.

A row has, with the last item of each model call, the ids that the call read (`prompt_token_ids`,
all of them), the ids that it sampled (`generation_token_ids`) and their log probabilities
(`generation_log_probs`). Nothing is tokenised again: a sample is made of these ids alone.

A prompt mostly begins with all that there was before. Where a reader left the ids as JSON text
(`RowParts`), their texts are compared and only what is new is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Raw

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout, WrongItem
from gymmesh_responses import LOGPROB_ROUNDING

_UNTRAINED: Final = -100
_IDS: Final = (int,)
_LOGPROBS: Final = (float, int)
_decode: Final = msgspec.json.Decoder().decode


class NoTokens(UserError):
    """A rollout has no token ids, or not those of every call: it makes no sample."""


@dataclass(slots=True)
class Sample:
    """One sequence to train on.

    Attributes:
        input_ids: what the model read and wrote, in order.
        mask: 1 where an id was sampled by the policy and is to be trained, else 0; as long.
        logprobs: of the sampled ids, when they were sampled; 0.0 elsewhere; as long. Empty when
            they were not captured, or one is not finite.
        labels: `input_ids` where the mask is 1, else -100, which trainers leave out of the loss; as
            `samples_of` makes them.
    """

    input_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    labels: list[int] = field(default_factory=list, compare=False)


def samples_of(rollout: StoredRollout) -> list[Sample]:
    """The samples of a rollout: one, and another for each call that did not go on from what there
    was (a fork: the history was rewritten). Each sampled id is trained in one sample only, and each
    sample has some.

    Raises:
        NoTokens: the row has no token ids, or the prompt of a call is not known.
        UserError: its lists are no numbers, or disagree.
    """
    writer = _SampleWriter()
    for place, item in enumerate(rollout.output):
        if "generation_token_ids" not in item:
            continue
        if "prompt_token_ids" not in item:
            raise NoTokens(
                f"{_place(rollout, place)}: has generation_token_ids but no prompt_token_ids; its "
                "call broke the exact-token law, and there is no sequence to train on"
            )
        try:
            writer.add(item)
        except WrongItem as wrong:
            raise UserError(f"{_place(rollout, place)}{wrong}") from None
    samples = [one for one, trains in zip(writer.samples, writer.trains, strict=True) if trains]
    if not samples:
        raise NoTokens(
            f"{rollout.where}: {rollout.output_key}: has no generation_token_ids; collect with a "
            "backend that captures tokens"
        )
    if not writer.captured:
        for sample in samples:
            sample.logprobs = []
    return samples


def _place(rollout: StoredRollout, place: int) -> str:
    return f"{rollout.where}: {rollout.output_key}[{place}]"


class _SampleWriter:
    """Puts the tokens of calls together.

    Attributes:
        trains: of each sample, whether any of its ids was sampled.
        captured: whether each call had a log probability for each of its ids.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.trains: list[bool] = []
        self.captured = True
        # How a prompt begins, as JSON text, that goes on from the last sample.
        self._beginning = b""

    def add(self, item: Json) -> None:
        """Put a call's tokens to the last sample, or to a new one where they do not follow it."""
        prompt, sampled = item["prompt_token_ids"], item["generation_token_ids"]
        read: Any = None  # what of the prompt is new; None where it does not follow
        if type(prompt) is Raw:
            text, sampled_text = bytes(prompt), bytes(sampled)
            read, sampled = self._after_beginning(text), _decoded(sampled_text)
            prompt = _decoded(text) if read is None else []
            # Where one of them is empty no prompt begins like this, and ids are compared.
            self._beginning = text[:-1] + b"," + sampled_text[1:-1]
        if not isinstance(prompt, list):
            raise WrongItem(".prompt_token_ids: must be a list of numbers")
        sampled = _ids(sampled, "generation_token_ids")
        logprobs = _logprobs(item.get("generation_log_probs", []))
        if logprobs and len(logprobs) != len(sampled):
            raise WrongItem(
                f": has {len(sampled)} generation_token_ids but {len(logprobs)} "
                "generation_log_probs; they must be as many"
            )
        if logprobs and max(logprobs) > LOGPROB_ROUNDING:
            raise WrongItem(f".generation_log_probs: {max(logprobs):g} is positive")
        if read is None:
            read = self._begun(prompt)
        self._extend(_ids(read, "prompt_token_ids"), sampled, logprobs)

    def _after_beginning(self, text: bytes) -> Any:
        """The ids of a prompt after those of the last sample; None where it begins otherwise."""
        held = len(self._beginning)
        if not held or not text.startswith(self._beginning):
            return None
        end = text[held : held + 1]
        if end == b",":
            return _decoded(b"[" + text[held + 1 :])
        return [] if end == b"]" else None

    def _begun(self, prompt: list[Any]) -> list[Any]:
        """As `_after_beginning`, by the ids themselves; begins a sample where they do not follow.

        Of a prompt only what is new is looked at: the rest has been, and is as long as the rollout.
        """
        if self.samples:
            held = len(self.samples[-1].input_ids)
            if prompt[:held] == self.samples[-1].input_ids:
                return prompt[held:]
        self.samples.append(Sample())
        self.trains.append(False)
        return prompt

    def _extend(self, read: list[int], sampled: list[int], logprobs: list[float]) -> None:
        sample = self.samples[-1]
        sample.input_ids += read
        sample.input_ids += sampled
        sample.mask += [0] * len(read)
        sample.mask += [1] * len(sampled)
        sample.labels += [_UNTRAINED] * len(read)
        sample.labels += sampled
        sample.logprobs += [0.0] * len(read)
        sample.logprobs += logprobs
        if sampled:
            self.trains[-1] = True
        if len(logprobs) != len(sampled):
            self.captured = False


def _decoded(text: bytes) -> Any:
    """A JSON value; None for text that msgspec refuses, which is no list of numbers either."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _logprobs(value: Any) -> list[Any]:
    """Log probabilities; none where one was not finite, for which a row has null: there is nothing
    to compare a new one with.
    """
    try:
        return _numbers(value, _LOGPROBS, "generation_log_probs")
    except WrongItem:
        if not isinstance(value, list) or None not in value:
            raise
        known = [one for one in value if one is not None]
        _numbers(known, _LOGPROBS, "generation_log_probs")
        return []


def _numbers(value: Any, kinds: tuple[type, ...], key: str) -> list[Any]:
    """A list, checked to have nothing but numbers by adding them up, which takes a fifth of what
    looking at each does. true and false, which JSON has for no token, count as 1 and 0.
    """
    try:
        if type(value) is list and type(sum(value)) in kinds:
            return value
    except TypeError:
        pass
    raise WrongItem(f".{key}: must be a list of numbers")


def _ids(value: Any, key: str) -> list[Any]:
    """Token ids, none of them negative."""
    found = _numbers(value, _IDS, key)
    if found and min(found) < 0:
        raise WrongItem(f".{key}: has the negative id {min(found)}")
    return found
