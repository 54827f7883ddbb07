"""A rollout ends where the trainer's longest completion ends."""

from __future__ import annotations

import pytest

from gymmesh_runtime.errors import MeshError, Reason
from gymmesh_trainers.hooks import CompletionLimit


def test_what_the_environment_says_counts_too() -> None:
    limit = CompletionLimit(6)
    assert limit.room([1, 2]) == 6
    assert limit.room([1, 2, 3, 4, 9]) == 3
    with pytest.raises(MeshError, match="has 6 tokens, but the trainer accepts at most 6") as said:
        limit.room([1, 2, 3, 4, 9, 5, 6, 7])
    assert said.value.reason == Reason.ERROR_REASON_MODEL_CONTEXT_EXCEEDED


def test_a_call_that_begins_anew_has_a_completion_of_its_own() -> None:
    limit = CompletionLimit(4)
    assert limit.room([1, 2]) == 4
    assert limit.room([7, 8, 9, 7, 8, 9]) == 4
    assert limit.room([7, 8, 9, 7, 8, 9, 1]) == 3
