from __future__ import annotations

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.tally import AttemptTally

MOST = 2**63 - 1


def test_every_number_is_told() -> None:
    assert AttemptTally(1, 2, 3, 4, 5).counts() == rollout_pb2.Counts(
        model_calls=1, tool_calls=2, turns=3, input_tokens=4, output_tokens=5
    )


@pytest.mark.parametrize(
    ("tokens", "counted"), [(MOST + 1, MOST), (2 * MOST, MOST), (-(2**63) - 1, -(2**63)), (-7, -7)]
)
def test_tokens_beyond_int64_count_as_its_bound(tokens: int, counted: int) -> None:
    read = AttemptTally(input_tokens=tokens, output_tokens=7).counts()
    wrote = AttemptTally(input_tokens=7, output_tokens=tokens).counts()
    assert (read.input_tokens, read.output_tokens) == (counted, 7)
    assert (wrote.input_tokens, wrote.output_tokens) == (7, counted)
