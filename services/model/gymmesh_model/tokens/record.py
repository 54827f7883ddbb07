"""The tokens of one call: the prefix that it continues, and its output. Pure.

Token ids and log probabilities are the contract's bytes; lists of Python numbers exist only where
JSON is read or written.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.errors import AnswerInvalid
from gymmesh_model.tokens.side_rows import SideRows
from gymmesh_responses import TOKEN_BYTES

_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED


def pack_ids(ids: Any) -> bytes:
    """Token ids of parsed JSON, a list of integers. Raises AnswerInvalid."""
    return _packed("i", ids, "token ids")


def pack_logprobs(values: Any) -> bytes:
    """Log probabilities of parsed JSON, a list of numbers. Raises AnswerInvalid."""
    return _packed("f", values, "log probabilities")


def count(ids: bytes) -> int:
    """The number of token ids or log probabilities in the bytes."""
    return len(ids) // TOKEN_BYTES


def last_index(ids: bytes, token: bytes, start: int) -> int:
    """The place of the last `token` at or after the place `start`, or -1."""
    for place in range(count(ids) - 1, start - 1, -1):
        if ids[place * TOKEN_BYTES : (place + 1) * TOKEN_BYTES] == token:
            return place
    return -1


def _packed(kind: str, values: Any, what: str) -> bytes:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise AnswerInvalid(f"the response's {what} are not a list")
    try:
        made = array(kind, values)
    except (TypeError, ValueError, OverflowError):
        raise AnswerInvalid(f"the response's {what} are not numbers of 32 bits") from None
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


@dataclass(frozen=True, slots=True)
class Rendered:
    """How an endpoint's template rendered a whole prompt: its tokens, by count and digest."""

    tokens: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Prefix:
    """The tokens of the earlier calls, with which a prompt must begin.

    Attributes:
        tokens: the parent call's prompt and output; int32, little-endian.
        items: how many leading items of the call's `input` the tokens cover.
        first_items: how many of these items the chain's first prompt had.
        first_tokens: how many of the tokens belong to that first prompt.
        output_tokens: how many of the last tokens the parent call sampled.
        closed: whether the sampled tokens end with the model's stop token; None: not known.
        rendered: how the parent's prompt was rendered, if this is known and differs from the
            prompt's tokens.
        is_rendered: whether the parent's prompt was rendered as a whole, so that its tokens are the
            rendering.
        rewritten: True if the caller changed items that the tokens stand for. The tokens can then
            be compared, but not continued.
        preamble: a digest of the instructions, the tools and the template's arguments with which
            the tokens begin; empty: not known.
        side_rows: for each name of side data, how many leading tokens already have a row.
    """

    tokens: bytes
    items: int
    first_items: int
    first_tokens: int
    output_tokens: int
    closed: bool | None = None
    rendered: Rendered | None = None
    is_rendered: bool = False
    rewritten: bool = False
    preamble: bytes = b""
    side_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def prompt(self) -> bytes:
        """The tokens that the parent call read."""
        return self.tokens[: len(self.tokens) - self.output_tokens * TOKEN_BYTES]

    @property
    def output(self) -> bytes:
        """The tokens that the parent call sampled."""
        return self.tokens[len(self.tokens) - self.output_tokens * TOKEN_BYTES :]


def weights_spans(
    said: Iterable[tuple[int, int] | tuple[int, int, str]],
) -> list[tokens_pb2.WeightsSpan]:
    """Spans of weights versions with the first output token of each span, and the adapter's name if
    there is one. Raises AnswerInvalid if the spans don't show which version sampled a token.
    """
    spans: list[tokens_pb2.WeightsSpan] = []
    try:
        for version, first, *adapter in said:
            span = tokens_pb2.WeightsSpan(version=version, first_token=first)
            if adapter:
                [span.adapter] = adapter
            spans.append(span)
    except (TypeError, ValueError):
        raise AnswerInvalid("the response's weight versions are not a list of spans") from None
    places = [span.first_token for span in spans]
    if places and (places[0] or places != sorted(places)):
        raise AnswerInvalid(
            "the spans of the response's weight versions do not begin at the first token, or are "
            "not in the order of the tokens"
        )
    return spans


@dataclass(slots=True)
class TokenRecord:
    """The tokens of one call. A backend adds them while it answers, so an aborted call keeps its
    tokens so far.

    The prompt is the first `prefix_tokens` tokens of the call's prefix, and then `prompt`.

    Attributes:
        prompt: the prompt's tokens after the prefix; int32, little-endian.
        prefix_tokens: how many tokens of the prefix the prompt begins with: all, or none.
        output, logprobs: the ids and log probabilities of the sampled tokens, in pieces; int32 and
            float32, little-endian.
        weights: the versions of the sampling weights; empty if the backend does not report them.
        fork: why the prompt does not begin with the prefix.
        closed: whether the output ends with the model's stop token; None: unknown.
        rendered: the template's rendering of the whole prompt, if it differs from the tokens that
            were read.
        known: whether the backend returned any tokens.
        preamble: see Prefix.
        distribution: the distribution of the log probabilities.
        constraint: the constraint on sampling the whole output, if any.
        constrained: the constrained parts in order, if only parts of the output were.
        side_asked: the names of side data that were requested and that the backend can return.
        side_data: the rows of side data from the backend, until they are stored.
        stored: the references to the stored side data.
        side_rows: as in Prefix, including the rows of this call.
    """

    logprobs_asked: bool = False
    prompt: bytes = b""
    prefix_tokens: int = 0
    output: list[bytes] = field(default_factory=list)
    logprobs: list[bytes] = field(default_factory=list)
    weights: list[tokens_pb2.WeightsSpan] = field(default_factory=list)
    fork: tokens_pb2.Fork | None = None
    closed: bool | None = None
    rendered: Rendered | None = None
    known: bool = False
    tokenizer_digest: bytes = b""
    preamble: bytes = b""
    distribution: tokens_pb2.LogprobDistribution.ValueType = _UNKNOWN
    constraint: tokens_pb2.Constraint.ValueType = tokens_pb2.CONSTRAINT_UNSPECIFIED
    constrained: Sequence[tokens_pb2.ConstrainedSpan] = ()
    side_asked: frozenset[str] = frozenset()
    side_data: list[SideRows] = field(default_factory=list)
    stored: Sequence[tokens_pb2.SideData] = ()
    side_rows: Mapping[str, int] = field(default_factory=dict)

    def begin_again(self) -> None:
        """Discards the output of a failed try."""
        self.output.clear()
        self.logprobs.clear()
        self.weights.clear()
        self.closed = None
        self.constrained = ()
        self.side_data = []

    def capture(self) -> tokens_pb2.TokenCapture:
        output, logprobs = b"".join(self.output), b"".join(self.logprobs)
        # An endpoint may give none; of a part of the tokens they could be read wrongly.
        known = len(logprobs) == len(output)
        constrained = self.constrained
        if self.constraint and output:
            whole = tokens_pb2.ConstrainedSpan(tokens=count(output), constraint=self.constraint)
            constrained = [whole]
        return tokens_pb2.TokenCapture(
            prompt_token_ids=self.prompt,
            output_token_ids=output,
            logprobs=logprobs if known else b"",
            weights=self.weights,
            fork=self.fork,
            prompt_prefix_tokens=self.prefix_tokens,
            tokenizer_digest=self.tokenizer_digest,
            logprob_distribution=self.distribution if logprobs and known else _UNKNOWN,
            constrained=constrained,
            side_data=self.stored,
        )

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the whole prompt has."""
        return self.prefix_tokens + count(self.prompt)
