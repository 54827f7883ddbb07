"""Scored choices: which one is best, and the scores that are refused."""

from __future__ import annotations

import struct

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.model import Normalize, best_of, read_scores
from gymmesh_runtime.errors import MeshError


def choice(text: str, logprob: float, tokens: int) -> rollout_pb2.ScoredChoice:
    return rollout_pb2.ScoredChoice(text=text, logprob=logprob, tokens=tokens)


def score(*logprobs: float, ids: int | None = None) -> model_pb2.ContinuationScore:
    count = len(logprobs) if ids is None else ids
    return model_pb2.ContinuationScore(
        token_ids=struct.pack(f"<{count}i", *range(count)),
        logprobs=struct.pack(f"<{len(logprobs)}f", *logprobs),
        greedy=True,
    )


@pytest.mark.parametrize(("normalize", "best"), [("none", 0), ("tokens", 1), ("bytes", 2)])
def test_scores_are_compared_as_asked(normalize: Normalize, best: int) -> None:
    choices = [choice("a", -2.0, 1), choice("bb", -3.0, 6), choice("éééé", -4.0, 2)]
    assert best_of(choices, normalize) == best


@pytest.mark.parametrize("normalize", ["none", "tokens", "bytes"])
def test_of_equal_scores_the_first_is_best(normalize: Normalize) -> None:
    choices = [choice("zz", -3.0, 2), choice("bb", -1.0, 2), choice("aa", -1.0, 2)]
    assert best_of(choices, normalize) == 1


def test_a_choice_has_the_sum_of_its_tokens() -> None:
    reply = model_pb2.ScoreContinuationsResponse(scores=[score(-0.5, -0.25), score(-8.0)])
    first, second = read_scores(reply, ["ab", "c"])
    assert (first.text, first.logprob, first.tokens, first.greedy) == ("ab", -0.75, 2, True)
    assert (second.text, second.logprob, second.tokens) == ("c", -8.0, 1)


@pytest.mark.parametrize(
    "scores",
    [[], [score(-1.0), score(-1.0)], [score()], [score(-1.0, ids=2)], [score(float("nan"))]],
)
def test_scores_that_do_not_fit_are_refused(scores: list[model_pb2.ContinuationScore]) -> None:
    reply = model_pb2.ScoreContinuationsResponse(scores=scores)
    with pytest.raises(MeshError) as raised:
        read_scores(reply, ["a"])
    assert raised.value.reason_name == "CONTRACT_VIOLATED"
