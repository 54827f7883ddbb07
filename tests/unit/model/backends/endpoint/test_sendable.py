"""Bodies that are given up once they are sent, and written anew for a retry."""

from __future__ import annotations

import pytest

from gymmesh_model.backends.endpoint.http import Sendable, sendable
from gymmesh_runtime.errors import MeshError, field_invalid


class Writer:
    """Counts how often it writes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.written = 0

    def __call__(self) -> bytes:
        self.written += 1
        return b"x" * self.size


def test_a_long_body_is_written_anew_for_each_retry_only() -> None:
    writer = Writer(100_000)
    body = sendable(writer)
    assert isinstance(body, Sendable)
    assert writer.written == 1
    first = body()
    assert writer.written == 1
    assert body() == first == b"x" * 100_000
    assert writer.written == 2


def test_a_short_body_is_kept() -> None:
    writer = Writer(100)
    assert sendable(writer) == b"x" * 100
    assert writer.written == 1


def test_what_cannot_be_sent_is_found_before_it_is_to_be() -> None:
    def refuse() -> bytes:
        raise field_invalid("params.input", "must be text")

    with pytest.raises(MeshError, match=r"params\.input"):
        sendable(refuse)
