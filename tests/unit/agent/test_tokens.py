"""The exact-token law as the agent holds model services to it."""

from __future__ import annotations

import hashlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import tokens_pb2
from gymmesh_agent.model.tokens import CapturedTokens, SettledTokens, invalid_tokens

ids = st.lists(st.integers(0, 5), max_size=6)
made = st.lists(st.tuples(ids, ids), min_size=1, max_size=6)


def packed(tokens: list[int]) -> bytes:
    return struct.pack(f"<{len(tokens)}i", *tokens)


def logprobs_of(tokens: list[int], logprobs: list[float]) -> tokens_pb2.TokenCapture:
    known = struct.pack(f"<{len(logprobs)}f", *logprobs)
    return tokens_pb2.TokenCapture(output_token_ids=packed(tokens), logprobs=known)


def capture(
    prompt: list[int], output: list[int], prefix: int = 0, *, fork: bool = False
) -> tokens_pb2.TokenCapture:
    said = tokens_pb2.TokenCapture(
        prompt_token_ids=packed(prompt),
        output_token_ids=packed(output),
        prompt_prefix_tokens=prefix,
    )
    if fork:
        said.fork.reason = tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
    return said


def settle(
    tokens: CapturedTokens, call: str, parent: str, said: tokens_pb2.TokenCapture, items: int = 1
) -> SettledTokens:
    before = said.SerializeToString()
    settled = tokens.settle(call, parent, said, prompt_items=items, output_items=1)
    assert said.SerializeToString() == before
    return settled


@given(pieces=made, whole=st.booleans())
def test_a_chain_is_exact_however_it_is_said(
    pieces: list[tuple[list[int], list[int]]], whole: bool
) -> None:
    """Said as a prefix or repeated whole, the events carry each token once."""
    tokens, known, parent = CapturedTokens(), list[int](), ""
    for number, (prompt, output) in enumerate(pieces):
        said = capture(known + prompt, output) if whole else capture(prompt, output, len(known))
        settled = settle(tokens, f"c{number}", parent, said, 2 * number + 1)
        assert settled.diverged is None
        assert settled.capture.prompt_token_ids == packed(prompt)
        assert settled.capture.prompt_prefix_tokens == len(known)
        known, parent = known + prompt + output, f"c{number}"
    sent = tokens.prefix(parent, unchanged=True)
    assert sent is not None
    assert sent.token_ids == packed(known)
    # An end for each item: a prompt's one new item, an answer's one.
    assert len(sent.item_ends) == 2 * len(pieces)
    ends, total = [], 0
    for prompt, output in pieces:
        ends += [total + len(prompt), total + len(prompt) + len(output)]
        total = ends[-1]
    assert list(sent.item_ends) == ends


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (capture([1, 2, 9, 4], [7]), 2),
        (capture([1, 2, 3], [7]), 3),
        (capture([9], [7]), 0),
        (capture([5], [7], 3), 3),
        (capture([5], [7], 9), 4),
    ],
    ids=["another token", "cut short", "all others", "too short a prefix", "too long a prefix"],
)
def test_what_breaks_the_law_is_found(said: tokens_pb2.TokenCapture, place: int) -> None:
    tokens = CapturedTokens()
    settle(tokens, "c1", "", capture([1, 2], [3, 4]))
    settled = settle(tokens, "c2", "c1", said)
    assert settled.diverged == place
    assert settled.capture == said
    # What comes after is held to this call's own tokens.
    if not said.prompt_prefix_tokens:
        total = len(said.prompt_token_ids) // 4 + 1
        assert settle(tokens, "c3", "c2", capture([8], [7], total)).diverged is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (tokens_pb2.TokenCapture(output_token_ids=b"\0\0\0\0\0"), "5 bytes"),
        (capture([1, -2], [3]), "the token id -2 is negative"),
        (capture([1], [-3]), "the token id -3 is negative"),
        (logprobs_of([3, 4], [-0.5]), "8 bytes of token ids and 4 of log probabilities"),
        (logprobs_of([3, 4], [-0.5, math.nan]), "a log probability is not finite"),
        (logprobs_of([3, 4], [-math.inf, math.inf]), "a log probability is not finite"),
        (logprobs_of([3, 4], [-0.5, 0.25]), "the log probability 0.25 is positive"),
    ],
)
def test_tokens_that_cannot_be_trained_on_are_refused(
    said: tokens_pb2.TokenCapture, problem: str
) -> None:
    error = invalid_tokens(said)
    assert error is not None
    assert problem in error.message
    assert error.reason == errors_pb2.ERROR_REASON_CONTRACT_VIOLATED


def test_log_probabilities_of_zero_and_their_rounding_are_sound() -> None:
    assert invalid_tokens(logprobs_of([3, 4, 5], [0.0, 1e-6, -9999.0])) is None
    assert invalid_tokens(capture([], [3])) is None


def test_a_declared_fork_breaks_nothing() -> None:
    tokens = CapturedTokens()
    settle(tokens, "c1", "", capture([1, 2], [3, 4]))
    settled = settle(tokens, "c2", "c1", capture([1, 9], [5], fork=True), 3)
    assert (settled.fork, settled.diverged) == ("TEMPLATE_REWRITES", None)
    assert settle(tokens, "c3", "c2", capture([6], [7], 3), 5).diverged is None
    sent = tokens.prefix("c3", unchanged=True)
    assert sent is not None
    assert sent.token_ids == packed([1, 9, 5, 6, 7])
    assert list(sent.item_ends) == [2, 2, 2, 3, 4, 5]


def test_a_prefix_of_nothing_breaks_the_law() -> None:
    assert settle(CapturedTokens(), "c1", "", capture([1], [2], 5)).diverged == 0


def test_of_changed_items_the_ends_are_not_said() -> None:
    tokens = CapturedTokens()
    settle(tokens, "c1", "", capture([1, 2], [3, 4]))
    sent = tokens.prefix("c1", unchanged=False)
    assert sent is not None
    assert (sent.token_ids, list(sent.item_ends)) == (packed([1, 2, 3, 4]), [])
    assert tokens.prefix("c9", unchanged=True) is None


def with_side_data(**changed: object) -> tokens_pb2.TokenCapture:
    """A call of three tokens with a row of one byte for the first two."""
    said = capture([1, 2], [3])
    fields: dict[str, object] = {
        "name": "routed_experts",
        "dtype": "uint8",
        "tokens": 2,
        "data": b"ab",
        "digest": hashlib.sha256(b"ab").digest(),
    }
    said.side_data.add(**(fields | changed))
    return said


def test_side_data_by_value_and_by_reference_is_passed_on() -> None:
    assert invalid_tokens(with_side_data()) is None
    stored = with_side_data(data=b"", location="file:///side/fb/fb8e")
    assert invalid_tokens(stored) is None
    settled = settle(CapturedTokens(), "c1", "", stored)
    assert settled.capture.side_data == stored.side_data


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "the name ''"),
        ({"dtype": "float64"}, "unknown type 'float64'"),
        ({"shape": [2, 0]}, "each length must be at least 1"),
        ({"tokens": 0}, "0 rows from token 0 on"),
        ({"first_token": 2}, "2 rows from token 2 on"),
        ({"digest": b"short"}, "its digest has 5 bytes"),
        ({"digest": bytes(32)}, "its numbers differ from their digest"),
        ({"data": b""}, "either data or a location"),
        ({"location": "file:///a"}, "either data or a location"),
        ({"data": b"abc"}, "it has 3 bytes of numbers, not 2"),
        ({"shape": [4000], "data": bytes(8000)}, "8000 bytes of numbers in the message"),
    ],
)
def test_side_data_that_cannot_be_theirs_breaks_the_contract(
    changed: dict[str, object], words: str
) -> None:
    error = invalid_tokens(with_side_data(**changed))
    assert error is not None
    assert error.reason == errors_pb2.ERROR_REASON_CONTRACT_VIOLATED
    assert words in error.message


def test_a_name_that_is_there_twice_breaks_the_contract() -> None:
    said = with_side_data()
    said.side_data.append(said.side_data[0])
    error = invalid_tokens(said)
    assert error is not None
    assert "not unique" in error.message


def test_who_sends_a_conversation_whole_says_which_rows_there_are() -> None:
    tokens = CapturedTokens()
    settle(tokens, "c1", "", with_side_data())
    sent = tokens.prefix("c1", unchanged=True)
    assert sent is not None
    assert dict(sent.side_data_rows) == {"routed_experts": 2}
    # A row that does not follow leaves a gap; one that does closes it.
    gap = capture([4], [5], 3)
    gap.side_data.add(name="routed_experts", dtype="uint8", first_token=4, tokens=1, data=b"e")
    settle(tokens, "c2", "c1", gap, 3)
    sent = tokens.prefix("c2", unchanged=True)
    assert sent is not None
    assert dict(sent.side_data_rows) == {"routed_experts": 2}
    closed = capture([6], [7], 5)
    closed.side_data.add(
        name="routed_experts", dtype="uint8", first_token=2, tokens=4, data=b"cdef"
    )
    settle(tokens, "c3", "c2", closed, 5)
    sent = tokens.prefix("c3", unchanged=True)
    assert sent is not None
    assert dict(sent.side_data_rows) == {"routed_experts": 6}
