"""The body of a request as JSON: what cannot be written is the caller's mistake."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_model.convert import write_whole
from gymmesh_responses import dumps, dumps_clean, loads
from gymmesh_runtime.errors import MeshError


def nested(levels: int) -> list[Any]:
    return reduce(lambda inner, _: [inner], range(levels - 1), [])


@pytest.mark.parametrize("write", [dumps, dumps_clean])
def test_a_body_deeper_than_its_parameters(write: Callable[[Any], bytes]) -> None:
    body = {"text": [*nested(30), loads(dumps(nested(240)))]}
    for _ in range(40):  # what the codec has read, and what was put around it
        body = {"text": [body]}
    with pytest.raises(MeshError) as caught:
        write_whole(body, write)
    assert caught.value.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    assert "nested deeper" in caught.value.message


def test_unpaired_surrogates_are_replaced() -> None:
    assert loads(write_whole({"text": "a\ud800b"})) == {"text": "a\ufffdb"}
