"""Which distribution a transformers engine's log probabilities are of."""

from __future__ import annotations

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_trainers import SamplingParams
from gymmesh_trainers.engine import logprobs_of

SAMPLING = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
RAW = tokens_pb2.LOGPROB_DISTRIBUTION_RAW
NEITHER = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED


@pytest.mark.parametrize(
    ("params", "of"),
    [
        (SamplingParams(), SAMPLING),
        (SamplingParams(temperature=0.7, top_p=1.0, top_k=0, min_p=0.0), SAMPLING),
        (SamplingParams(temperature=0.0), RAW),
        (SamplingParams(temperature=1.0, top_p=0.9), RAW),
        (SamplingParams(temperature=1.0, top_k=20), RAW),
        (SamplingParams(temperature=0.7, min_p=0.1), NEITHER),
    ],
)
def test_log_probabilities_say_which_distribution_they_are_of(
    params: SamplingParams, of: tokens_pb2.LogprobDistribution.ValueType
) -> None:
    assert logprobs_of(params) == of
