"""The channels of an exec."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_sandbox.backends.kubernetes import frames


@given(st.binary(max_size=200_000))
def test_standard_input_arrives_in_pieces(data: bytes) -> None:
    sent = [frames.split_frame(one) for one in frames.stdin_frames(data)]
    assert {channel for channel, _ in sent} <= {frames.STDIN}
    assert b"".join(piece for _, piece in sent) == data


def test_an_empty_message_is_of_no_channel() -> None:
    assert frames.split_frame(b"") == (-1, b"")
    assert frames.split_frame(b"\x01") == (frames.STDOUT, b"")


def status(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_exit_codes() -> None:
    assert frames.exit_code_of(status(status="Success")) == 0
    failed = {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "137"}]},
    }
    assert frames.exit_code_of(status(**failed)) == 137


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        status(),
        status(status="Failure", message="container not found"),
        status(status="Failure", reason="NonZeroExitCode"),
        status(
            status="Failure",
            reason="NonZeroExitCode",
            details={"causes": [{"reason": "ExitCode", "message": "-1"}]},
        ),
    ],
)
def test_an_end_that_is_not_known_is_no_exit_code(said: bytes) -> None:
    with pytest.raises(frames.ExecRefused):
        frames.exit_code_of(said)
