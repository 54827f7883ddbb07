from __future__ import annotations

import pytest

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.tally import AttemptTally

MOST = 2**63 - 1


def test_every_number_is_told() -> None:
    assert AttemptTally(1, 2, 3, 4, 5).counts() == rollout_pb2.Counts(
        model_calls=1, tool_calls=2, turns=3, input_tokens=4, output_tokens=5
    )


@pytest.mark.parametrize(("read", "wrote"), [(MOST + 1, 7), (7, 2 * MOST)])
def test_more_tokens_than_the_contract_can_tell_are_the_most_it_can(read: int, wrote: int) -> None:
    counts = AttemptTally(input_tokens=read, output_tokens=wrote).counts()
    assert (counts.input_tokens, counts.output_tokens) == (min(read, MOST), min(wrote, MOST))
