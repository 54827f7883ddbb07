"""The channels of an exec."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_sandbox.backends.kubernetes import frames

WORD = b"5f0c5f0c5f0c"


@given(st.binary(max_size=200_000))
def test_standard_input_arrives_in_pieces(data: bytes) -> None:
    sent = [frames.split_frame(one) for one in frames.stdin_frames(data)]
    assert {channel for channel, _ in sent} <= {frames.STDIN}
    assert b"".join(piece for _, piece in sent) == data


def test_an_empty_message_is_of_no_channel() -> None:
    assert frames.split_frame(b"") == (-1, b"")
    assert frames.split_frame(b"\x01") == (frames.STDOUT, b"")


@given(
    st.lists(st.sampled_from((b"5f0c", b"5f0c5f0c5", b"a", b"\n", b"")), max_size=9).map(b"".join),
    st.binary(max_size=9),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_the_end_is_found_however_it_is_cut(before: bytes, after: bytes, cuts: list[int]) -> None:
    text = before + WORD + b" 137 1 2\n" + after
    at = text.find(WORD)
    places = [0, *sorted(min(one, len(text)) for one in cuts), len(text)]
    mark = frames.EndMark(WORD)
    said = b"".join(mark.take(text[start:end]) for start, end in itertools.pairwise(places))
    assert mark.numbers == (137, 1, 2) or at < len(before)
    if at == len(before):
        assert said + mark.rest() == before + after


@given(st.binary(max_size=40), st.integers(0, 40))
def test_nothing_is_lost_without_an_end(text: bytes, cut: int) -> None:
    text = text.replace(WORD, b"")
    mark = frames.EndMark(WORD)
    assert mark.take(text[:cut]) + mark.take(text[cut:]) + mark.rest() == text
    assert mark.numbers is None


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
