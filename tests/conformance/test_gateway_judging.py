"""What the gateway suite finds wrong in training samples, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gymmesh_conformance.gateway import CaughtCall, CaughtSample, SampledTokens
from gymmesh_conformance.gateway.judging import judged_calls, judged_tokens
from gymmesh_conformance.gateway.sessions import StepExpectation

STEPS = ("first", "title", "second")
EXPECTED = {
    "first": StepExpectation(),
    "title": StepExpectation(link="side", side="title", trained=False),
    "second": StepExpectation(parent="first"),
}
FIRST = SampledTokens((1, 2), (3, 4), (-0.5, -0.25))
TITLE = SampledTokens((9,), (3, 4), (-1.5, -1.25))
SECOND = SampledTokens((1, 2, 3, 4, 5), (6,), (-0.75,))
SAMPLED = (FIRST, TITLE, SECOND)
CAUGHT = (
    CaughtCall(None, is_trained=True, tokens=FIRST),
    CaughtCall(None, is_trained=False, tokens=TITLE),
    CaughtCall(0, is_trained=True, tokens=SECOND),
)
WHOLE = CaughtSample(
    (1, 2, 3, 4, 5, 6),
    (False, False, True, True, False, True),
    (0.0, 0.0, -0.5, -0.25, 0.0, -0.75),
)
FIRST_ALONE = CaughtSample((1, 2, 3, 4), (False, False, True, True))
SECOND_ALONE = CaughtSample((1, 2, 3, 4, 5, 6), (False,) * 5 + (True,))


def problems(
    samples: list[CaughtSample], caught: tuple[CaughtCall, ...] = CAUGHT
) -> tuple[str, ...]:
    return judged_tokens(caught, samples, SAMPLED, STEPS, EXPECTED).problems


@pytest.mark.parametrize(
    "samples",
    [[WHOLE], [FIRST_ALONE, SECOND_ALONE], [replace(WHOLE, logprobs=None)]],
    ids=["one sample", "a sample for each call", "without log probabilities"],
)
def test_every_token_once_is_right(samples: list[CaughtSample]) -> None:
    assert problems(samples) == ()


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ([SECOND_ALONE], "step first: its tokens are trained on 0 times"),
        ([WHOLE, FIRST_ALONE], "step first: its tokens are trained on 2 times"),
        (
            [WHOLE, CaughtSample((9, 3, 4), (False, True, True))],
            "step title: its tokens are trained on",
        ),
        (
            [replace(WHOLE, mask=(False, True, True, True, False, True))],
            "training sample 1: trains on 1 tokens that the model did not sample behind this "
            "prompt",
        ),
        (
            [FIRST_ALONE, replace(SECOND_ALONE, ids=(1, 2, 7, 4, 5, 6))],
            "step second: its tokens are trained on 0 times",
        ),
        (
            [replace(WHOLE, mask=(False, False, True, False, False, True))],
            "step first: 1 of its tokens are not trained on",
        ),
        (
            [replace(WHOLE, logprobs=(0.0, 0.0, -0.5, -0.5, 0.0, -0.75))],
            "step first: a sample has other log probabilities than the model gave",
        ),
        ([replace(WHOLE, mask=(True,))], "training sample 1: 6 tokens, and a mask of 1"),
    ],
    ids=[
        "never", "twice", "a side call", "of the prompt", "behind another prompt", "in part",
        "log probabilities", "lengths",
    ],
)  # fmt: skip
def test_what_would_be_trained_wrongly_is_found(samples: list[CaughtSample], problem: str) -> None:
    assert problem in problems(samples)


def test_tokens_of_calls_are_those_of_the_model() -> None:
    other = replace(CAUGHT[0], tokens=replace(FIRST, output=(3, 5)))
    assert problems([WHOLE], (other, *CAUGHT[1:])) == (
        "step first: its tokens are not those that the model read and sampled",
    )
    other = replace(CAUGHT[0], tokens=replace(FIRST, logprobs=(-0.5, -0.5)))
    assert problems([WHOLE], (other, *CAUGHT[1:])) == (
        "step first: its log probabilities are not those that the model gave",
    )


def test_a_continuation_begins_with_the_tokens_of_its_parent() -> None:
    claims = replace(CAUGHT[2], parent=1)
    broken = "step second: its prompt does not begin with the tokens of the call before it"
    assert problems([WHOLE], (*CAUGHT[:2], claims)) == (broken,)
    # A gateway that says so itself has kept the law.
    assert problems([WHOLE], (*CAUGHT[:2], replace(claims, is_detached=True))) == ()


def test_what_is_not_there_is_not_shown() -> None:
    judged = judged_tokens(CAUGHT, None, SAMPLED, STEPS, EXPECTED)
    assert (judged.problems, judged.lacks) == ((), "the gateway gives no training samples")
    judged = judged_tokens(CAUGHT, [WHOLE], (), STEPS, EXPECTED)
    assert (judged.problems, judged.lacks) == ((), "the model was not asked for tokens")


def test_a_gateway_that_does_not_say_is_not_judged_and_not_passed() -> None:
    unplaced = tuple(CaughtCall(None, is_trained=None, is_placed=False) for _ in STEPS)
    judged = judged_calls(unplaced, STEPS, EXPECTED)
    assert judged.problems == ()
    assert judged.lacks == "the gateway does not say what each call hangs on"
    placed = tuple(replace(call, is_trained=None) for call in CAUGHT)
    judged = judged_calls(placed, STEPS, EXPECTED)
    assert judged.lacks == "the gateway does not say which calls are trained on"
    assert judged_calls(CAUGHT, STEPS, EXPECTED).lacks == ""
