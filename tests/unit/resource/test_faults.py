"""What a failure of environment code says: the place and the stage in one bracket."""

from __future__ import annotations

import pytest

from gymmesh_resource.errors import WrongResult
from gymmesh_resource.serving.faults import environment_fault


def returns_a_text() -> str:
    return "right"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (WrongResult("returned a text", returns_a_text), "test_faults.py:11, in verify)."),
        (WrongResult("returned a text"), "a text (in verify)."),
        (KeyError("x"), "raised KeyError: 'x' (in verify)."),
    ],
)
def test_one_bracket(error: Exception, said: str) -> None:
    message = environment_fault(error, "sums", "verify").message
    assert message.endswith(said), message
    assert message.count("(") == 1
