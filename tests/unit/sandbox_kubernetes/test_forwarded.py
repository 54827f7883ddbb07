"""The messages of a forwarded port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_sandbox.backends.kubernetes.forwarded import (
    ForwardFailed,
    ForwardReader,
    data_frames,
)

PORT = (8080).to_bytes(2, "little")


@given(st.binary(max_size=200_000))
def test_bytes_go_to_the_port_in_pieces(data: bytes) -> None:
    sent = list(data_frames(data))
    assert all(one[0] == 0 and len(one) <= 1 + (1 << 16) for one in sent)
    assert b"".join(one[1:] for one in sent) == data


@given(st.lists(st.binary(max_size=9), max_size=5), st.booleans())
def test_the_ports_number_is_not_of_the_connection(pieces: list[bytes], whole: bool) -> None:
    reader = ForwardReader()
    first = [b"\0" + PORT] if whole else [b"\0" + PORT[:1], b"\0" + PORT[1:]]
    said = b"".join(reader.take(one) for one in (*first, *(b"\0" + piece for piece in pieces)))
    assert said == b"".join(pieces)


def test_what_went_wrong_is_said() -> None:
    reader = ForwardReader()
    assert reader.take(b"\x01" + PORT) == b""
    assert reader.take(b"") == reader.take(b"\x07other") == b""
    with pytest.raises(ForwardFailed, match="connection refused"):
        reader.take(b"\x01connection refused")
