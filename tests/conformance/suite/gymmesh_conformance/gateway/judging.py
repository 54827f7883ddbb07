"""What is wrong with the calls and the training samples that a gateway captured. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_conformance.gateway.adapter import CaughtCall, CaughtSample, SampledTokens
from gymmesh_conformance.gateway.sessions import StepExpectation

#: How far a log probability may be from the model's: some gateways keep four decimals.
_LOGPROB_TOLERANCE: Final = 1e-4


@dataclass(frozen=True)
class Judged:
    """What came of a comparison.

    Attributes:
        problems: what is wrong.
        lacks: why nothing is shown; empty: all is there.
    """

    problems: tuple[str, ...] = ()
    lacks: str = ""


def judged_calls(
    caught: Sequence[CaughtCall], steps: Sequence[str], expected: Mapping[str, StepExpectation]
) -> Judged:
    """The captured calls, each beside its step and what is expected of it."""
    problems: list[str] = []
    for place, (call, step) in enumerate(zip(caught, steps, strict=True)):
        right = expected[step]
        if call.is_placed:
            problems += _parent_problems(step, place, call, steps, right)
        if call.is_trained is not None and call.is_trained != right.trained:
            problems.append(f"step {step}: {'' if call.is_trained else 'not '}trained on")
        problems += _differences(step, call, right)
    lacks = ""
    if not all(call.is_placed for call in caught):
        lacks = "the gateway does not say what each call hangs on"
    elif any(call.is_trained is None for call in caught):
        lacks = "the gateway does not say which calls are trained on"
    return Judged(tuple(problems), lacks)


def _parent_problems(
    step: str, place: int, call: CaughtCall, steps: Sequence[str], right: StepExpectation
) -> list[str]:
    if call.parent is not None and call.parent >= place:
        return [f"step {step}: hangs on a later call"]
    parent = steps[call.parent] if call.parent is not None else ""
    if parent == right.parent or (right.may_hang_on_nothing and not parent):
        return []
    return [f"step {step}: hangs on {parent or 'nothing'}, not {right.parent or 'nothing'}"]


def _differences(step: str, call: CaughtCall, right: StepExpectation) -> list[str]:
    told: list[tuple[str, Any, Any]] = [
        ("link", call.link, right.link),
        ("fork's reason", call.reason, right.reason),
        ("side call", call.side, right.side),
    ]
    return [
        f"step {step}: the {what} is {said or 'none'}, not {wanted or 'none'}"
        for what, said, wanted in told
        if said is not None and said != wanted
    ]


def judged_tokens(
    caught: Sequence[CaughtCall],
    samples: Sequence[CaughtSample] | None,
    sampled: Sequence[SampledTokens],
    steps: Sequence[str],
    expected: Mapping[str, StepExpectation],
) -> Judged:
    """The tokens of the calls and the training samples, beside what the model read and wrote.

    Args:
        samples: the gateway's; None: it has none.
        sampled: the tokens of each step's call, as the model's server knows them; empty: it has
            none.
    """
    if samples is None:
        return Judged(lacks="the gateway gives no training samples")
    if len(sampled) != len(steps):
        return Judged(lacks="the model was not asked for tokens")
    problems: list[str] = []
    for call, step, truth in zip(caught, steps, sampled, strict=True):
        problems += _token_problems(step, call, truth)
        problems += _prefix_problems(step, call, truth, sampled)
    return Judged((*problems, *_sample_problems(samples, sampled, steps, expected)))


def _token_problems(step: str, call: CaughtCall, truth: SampledTokens) -> list[str]:
    """The tokens of a call are those that the model read and sampled."""
    own = call.tokens
    if own is None:
        return []
    if (own.prompt, own.output) != (truth.prompt, truth.output):
        return [f"step {step}: its tokens are not those that the model read and sampled"]
    if own.logprobs and not _are_close(own.logprobs, truth.logprobs):
        return [f"step {step}: its log probabilities are not those that the model gave"]
    return []


def _prefix_problems(
    step: str, call: CaughtCall, truth: SampledTokens, sampled: Sequence[SampledTokens]
) -> list[str]:
    """The prompt of a call that continues another begins with that one's tokens."""
    if call.parent is None or call.is_detached or not 0 <= call.parent < len(sampled):
        return []
    before = (*sampled[call.parent].prompt, *sampled[call.parent].output)
    if truth.prompt[: len(before)] == before:
        return []
    return [f"step {step}: its prompt does not begin with the tokens of the call before it"]


def _sample_problems(
    samples: Sequence[CaughtSample],
    sampled: Sequence[SampledTokens],
    steps: Sequence[str],
    expected: Mapping[str, StepExpectation],
) -> list[str]:
    """Every token that a call sampled is trained once, behind the prompt that the model read, or
    never where the call is beside the conversation; and nothing else is trained.
    """
    problems = [
        f"training sample {number}: {len(one.ids)} tokens, and a mask of {len(one.mask)}"
        for number, one in enumerate(samples, 1)
        if len(one.ids) != len(one.mask)
    ]
    if problems:
        return problems
    unexplained = [set(_trained(one)) for one in samples]
    for step, truth in zip(steps, sampled, strict=True):
        times = 0
        for sample, left in zip(samples, unexplained, strict=True):
            spoken = _spoken(sample, truth)
            trained = [place for place in spoken if sample.mask[place]]
            left.difference_update(trained)
            if not trained:
                continue
            times += 1
            if len(trained) < len(spoken):
                missing = len(spoken) - len(trained)
                problems.append(f"step {step}: {missing} of its tokens are not trained on")
            if sample.logprobs is not None:
                own = [sample.logprobs[place] for place in spoken]
                if not _are_close(own, truth.logprobs):
                    found = f"step {step}: a sample has other log probabilities than the model gave"
                    problems.append(found)
        problems += _times_problems(step, times, expected[step])
    problems += [
        f"training sample {number}: trains on {len(left)} tokens that the model did not sample "
        "behind this prompt"
        for number, left in enumerate(unexplained, 1)
        if left
    ]
    return problems


def _times_problems(step: str, times: int, right: StepExpectation) -> list[str]:
    if not right.trained:
        return [f"step {step}: its tokens are trained on"] if times else []
    if times == 1:
        return []
    return [f"step {step}: its tokens are trained on {times} times"]


def _trained(sample: CaughtSample) -> list[int]:
    return [place for place, is_on in enumerate(sample.mask) if is_on]


def _spoken(sample: CaughtSample, truth: SampledTokens) -> range:
    """Where a sample has what a call sampled, behind all that the call read; empty: nowhere."""
    begin, end = len(truth.prompt), len(truth.prompt) + len(truth.output)
    if sample.ids[:end] == (*truth.prompt, *truth.output):
        return range(begin, end)
    return range(0)


def _are_close(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(
        math.isclose(one, other, abs_tol=_LOGPROB_TOLERANCE)
        for one, other in zip(some, others, strict=True)
    )
