"""The exact tokens of a rollout as training samples. Pure.

A row has, with the last item of each model call, the ids that the call read (`prompt_token_ids`,
all of them), the ids that it sampled (`generation_token_ids`) and their log probabilities
(`generation_log_probs`). Nothing is tokenised again: a sample is made of these ids alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data.rollout import Json, StoredRollout

_IDS: Final = (int,)
_LOGPROBS: Final = (float, int)


class NoTokens(UserError):
    """A rollout has no token ids, or not those of every call: it makes no sample."""


@dataclass(slots=True)
class Sample:
    """One sequence to train on.

    Attributes:
        input_ids: what the model read and wrote, in order.
        mask: 1 where an id was sampled by the policy and is to be trained, else 0; as long.
        logprobs: of the sampled ids, when they were sampled; 0.0 elsewhere; as long. Empty when
            they were not captured.
    """

    input_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def labels(self) -> list[int]:
        """`input_ids` where the mask is 1, else -100, which trainers leave out of the loss."""
        return [one if on else -100 for one, on in zip(self.input_ids, self.mask, strict=True)]


def samples_of(rollout: StoredRollout) -> list[Sample]:
    """The samples of a rollout: one, and another for each call that did not go on from what there
    was (a fork: the history was rewritten). Each sampled id is trained in one sample only.

    Raises:
        NoTokens: the row has no token ids, or the prompt of a call is not known.
        UserError: its lists are no numbers, or disagree.
    """
    samples: list[Sample] = []
    captured = True
    for place, item in enumerate(rollout.output):
        if "generation_token_ids" not in item:
            continue
        if "prompt_token_ids" not in item:
            raise NoTokens(
                f"{_place(rollout, place)}: has generation_token_ids but no prompt_token_ids; its "
                "call broke the exact-token law, and there is no sequence to train on"
            )
        try:
            captured = _extend(samples, item) and captured
        except _Wrong as wrong:
            raise UserError(f"{_place(rollout, place)}{wrong}") from None
    if not samples:
        raise NoTokens(
            f"{rollout.where}: response.output: has no generation_token_ids; collect with a "
            "backend that captures tokens"
        )
    if not captured:
        for sample in samples:
            sample.logprobs = []
    return samples


class _Wrong(Exception):
    """What is wrong with an item; the place goes before it."""


def _place(rollout: StoredRollout, place: int) -> str:
    return f"{rollout.where}: response.output[{place}]"


def _extend(samples: list[Sample], item: Json) -> bool:
    """Put a call's tokens to the last sample, or to a new one where they do not follow it.

    Of a prompt only what is new is looked at: the rest has been, and is as long as the rollout.
    Returns whether the call has a log probability for each of its ids.
    """
    prompt = item["prompt_token_ids"]
    if not isinstance(prompt, list):
        raise _Wrong(".prompt_token_ids: must be a list of numbers")
    sampled = _numbers(item["generation_token_ids"], _IDS, "generation_token_ids")
    logprobs = _numbers(item.get("generation_log_probs", []), _LOGPROBS, "generation_log_probs")
    if logprobs and len(logprobs) != len(sampled):
        raise _Wrong(
            f": has {len(sampled)} generation_token_ids but {len(logprobs)} "
            "generation_log_probs; they must be as many"
        )
    held = len(samples[-1].input_ids) if samples else 0
    if not samples or prompt[:held] != samples[-1].input_ids:
        samples.append(Sample())
        held = 0
    sample = samples[-1]
    read = _numbers(prompt[held:] if held else prompt, _IDS, "prompt_token_ids")
    sample.input_ids += read
    sample.input_ids += sampled
    sample.mask += [0] * len(read)
    sample.mask += [1] * len(sampled)
    sample.logprobs += [0.0] * len(read)
    sample.logprobs += logprobs
    return len(logprobs) == len(sampled)


def _numbers(value: Any, kinds: tuple[type, ...], key: str) -> list[Any]:
    """A list, checked to have nothing but numbers by adding them up, which takes a fifth of what
    looking at each does. true and false, which JSON has for no token, count as 1 and 0.
    """
    try:
        if type(value) is list and type(sum(value)) in kinds:
            return value
    except TypeError:
        pass
    raise _Wrong(f".{key}: must be a list of numbers")
