"""Samples of call trees, and advantages: against what is worked out by hand or another way."""

from __future__ import annotations

import statistics
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_trainers import advantages, samples_of


def call(
    name: str,
    prompt: list[int],
    output: list[int],
    *,
    parent: str = "",
    prefix: int = 0,
    trainable: bool = True,
    actor: str = "",
    fork: bool = False,
    versions: tuple[tuple[int, int], ...] = (),
) -> pb.ModelCallCompleted:
    made = pb.ModelCallCompleted(
        call_id=name, parent_call_id=parent, trainable=trainable, actor=actor
    )
    made.tokens.prompt_token_ids = array("i", prompt[prefix:]).tobytes()
    made.tokens.prompt_prefix_tokens = prefix
    made.tokens.output_token_ids = array("i", output).tobytes()
    made.tokens.logprobs = array("f", [-1.0] * len(output)).tobytes()
    for version, first in versions:
        made.tokens.weights.append(tokens_pb2.WeightsSpan(version=version, first_token=first))
    if fork:
        made.tokens.fork.reason = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
    return made


def test_a_chain_is_one_sample() -> None:
    [sample] = samples_of(
        [
            call("a", [1, 2], [3, 4], versions=((5, 0), (6, 1))),
            call("b", [1, 2, 3, 4, 9], [7], parent="a", prefix=4),
        ]
    )
    assert sample.tokens == [1, 2, 3, 4, 9, 7]
    assert sample.mask == [0, 0, 1, 1, 0, 1]
    assert sample.logprobs == [0.0, 0.0, -1.0, -1.0, 0.0, -1.0]
    assert sample.weights_versions == [-1, -1, 5, 6, -1, -1]
    assert sample.prompt_ids == [1, 2]
    assert sample.completion_mask == [1, 1, 0, 1]
    assert sample.labels == [-100, -100, 3, 4, -100, 7]


def test_paths_share_their_beginning_and_it_is_trained_once() -> None:
    first, second = samples_of(
        [
            call("a", [1], [2]),
            call("b", [1, 2, 8], [3], parent="a", prefix=2),
            call("c", [1, 2, 9], [4], parent="a", prefix=2),
        ]
    )
    assert (first.tokens, first.mask) == ([1, 2, 8, 3], [0, 1, 0, 1])
    assert (second.tokens, second.mask) == ([1, 2, 9, 4], [0, 0, 0, 1])


def test_forks_actors_and_frozen_calls() -> None:
    samples = samples_of(
        [
            call("a", [1], [2]),
            call("b", [5], [6], parent="a", fork=True),
            call("critic", [7], [8], actor="critic"),
            call("judge", [9], [10], trainable=False),
        ]
    )
    assert [(one.actor, one.tokens, one.mask) for one in samples] == [
        ("", [1, 2], [0, 1]),
        ("", [5, 6], [0, 1]),
        ("critic", [7, 8], [0, 1]),
    ]


def test_an_actor_that_goes_on_from_anothers_call_has_a_sample_of_its_own() -> None:
    samples = samples_of(
        [
            call("a", [1], [2]),
            call("b", [1, 2, 3], [4], parent="a", prefix=2, actor="critic"),
            call("c", [1, 2, 3, 4, 5], [6], parent="b", prefix=4),
            call("d", [1, 2, 3, 4, 5, 6, 7], [8], parent="c", prefix=6, actor="critic"),
        ]
    )
    assert [(one.actor, one.tokens, one.mask, one.prompt_length) for one in samples] == [
        ("", [1, 2, 3, 4, 5, 6], [0, 1, 0, 0, 0, 1], 1),
        ("critic", [1, 2, 3, 4, 5, 6, 7, 8], [0, 0, 0, 1, 0, 0, 0, 1], 3),
    ]


def test_a_path_with_nothing_to_train_is_no_sample() -> None:
    [sample] = samples_of(
        [
            call("a", [1], [2]),
            call("b", [1, 2, 8], [3], parent="a", prefix=2),
            call("c", [1, 2, 9], [], parent="a", prefix=2),
        ]
    )
    assert sample.tokens == [1, 2, 8, 3]
    assert samples_of([call("a", [1], [])]) == []


def test_log_probabilities_that_are_not_finite_are_none() -> None:
    broken = call("a", [1], [2, 3])
    broken.tokens.logprobs = array("f", [-0.5, float("-inf")]).tobytes()
    [sample] = samples_of([broken, call("b", [1, 2, 3, 4], [5], parent="a", prefix=3)])
    assert (sample.mask, sample.logprobs) == ([0, 1, 1, 0, 1], [])


def test_weights_that_begin_late_move_no_token() -> None:
    [sample] = samples_of([call("a", [1], [2, 3, 4], versions=((5, 1), (6, 9)))])
    assert sample.weights_versions == [-1, -1, 5, 5]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16))
def test_advantages(rewards: list[float]) -> None:
    found = advantages(rewards)
    if len(set(rewards)) == 1:
        assert found == [0.0] * len(rewards)
        return
    mean, deviation = sum(rewards) / len(rewards), statistics.stdev(rewards)
    assert found == pytest.approx([(one - mean) / (deviation + 1e-4) for one in rewards])
    assert advantages(rewards, scale=False) == pytest.approx([one - mean for one in rewards])


def test_a_reward_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        advantages([1.0, float("nan")])


def test_log_probabilities_of_several_distributions_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sampling = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    raw, unknown = (
        tokens_pb2.LOGPROB_DISTRIBUTION_RAW,
        tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED,
    )
    first = call("a", [1], [2])
    second = call("b", [1, 2, 8], [3], parent="a", prefix=2)
    for one, two, found in (
        (sampling, sampling, sampling),
        (raw, raw, raw),
        (sampling, raw, None),
        (raw, unknown, None),
    ):
        first.tokens.logprob_distribution = one
        second.tokens.logprob_distribution = two
        [sample] = samples_of([first, second])
        assert sample.logprob_distribution == (unknown if found is None else found)
        assert len(sample.logprobs) == (0 if found is None else 4)
        assert sample.mask == [0, 1, 0, 1]
    said = [one for one in caplog.messages if "several distributions" in one]
    assert len(said) <= 1, "it is said once in a process"
