"""The exact-token law as the agent holds model services to it."""

from __future__ import annotations

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
