"""The tokens of an attempt's model calls, checked against the exact-token law, and their weights.
Pure.

The law: the prompt of a call begins with the tokens (prompt and output) of the call that it
continues, or the call declares a fork. Each call stores only the tokens that it added. So a
conversation's tokens are a chain of pieces, which are joined when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_responses import TOKEN_BYTES, common_tokens, side_data_problem, token_problem
from gymmesh_runtime.errors import MeshError


@dataclass(slots=True)
class _CallTokens:
    parent: _CallTokens | None  # whose tokens stand before `own`
    own: bytes
    prompt_tokens: int
    total: int
    prompt_items: int
    output_items: int
    side_rows: Mapping[str, int]  # by name, how many leading tokens have a row of side data

    def chain(self) -> list[_CallTokens]:
        calls: list[_CallTokens] = []
        node: _CallTokens | None = self
        while node is not None:
            calls.append(node)
            node = node.parent
        return calls[::-1]

    def tokens(self) -> bytes:
        return b"".join(call.own for call in self.chain())


@dataclass(frozen=True, slots=True)
class SettledTokens:
    """The result of checking a call's tokens.

    Attributes:
        capture: the capture for the rollout's event: as received, without the parent's tokens.
        fork: the reason of a declared fork, by name; empty if there is none.
        diverged: the position of the first token that violates the law; None if none does.
    """

    capture: tokens_pb2.TokenCapture
    fork: str = ""
    diverged: int | None = None


class CapturedTokens:
    """All captured tokens of one attempt."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[str, _CallTokens] = {}

    def settle(
        self,
        call_id: str,
        parent: str,
        capture: tokens_pb2.TokenCapture,
        *,
        prompt_items: int,
        output_items: int,
    ) -> SettledTokens:
        """Takes the tokens of an answered call and checks them.

        Args:
            parent: the call whose conversation this call continues with the same model; empty if
                there is none.
            capture: as received; not changed.
            prompt_items: the number of items of the call's whole conversation.
            output_items: the number of items of its answer.
        """
        above = self._calls.get(parent)
        settled, above = _check(above, capture)
        before = above.total if above is not None else 0
        own = settled.capture.prompt_token_ids + capture.output_token_ids
        prompt = before + len(settled.capture.prompt_token_ids) // TOKEN_BYTES
        total = before + len(own) // TOKEN_BYTES
        rows = _side_rows(above, settled.capture)
        self._calls[call_id] = _CallTokens(
            above, own, prompt, total, prompt_items, output_items, rows
        )
        return settled

    def prefix(self, call_id: str, *, unchanged: bool) -> model_pb2.PrefixTokens | None:
        """The prefix for a whole conversation that is sent after this call.

        Args:
            unchanged: whether the items of the tokens are unchanged.
        """
        last = self._calls.get(call_id)
        if last is None:
            return None
        sent = model_pb2.PrefixTokens(token_ids=last.tokens(), side_data_rows=last.side_rows)
        if unchanged:
            items = 0
            for call in last.chain():
                sent.item_ends.extend([call.prompt_tokens] * (call.prompt_items - items))
                sent.item_ends.extend([call.total] * call.output_items)
                items = call.prompt_items + call.output_items
        return sent


class WeightsAge:
    """The age of the weights that wrote a rollout, checked against `RolloutOptions.max_staleness`.

    The current version is the newest known version: from an answer of the rollout, or from the
    model service at the rollout's end.

    Args:
        limit: the maximum number of versions that the oldest weights may be behind; None: no limit.
    """

    __slots__ = ("_current", "_limit", "_oldest")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._oldest: int | None = None
        self._current = 0

    def add(self, spans: Iterable[tokens_pb2.WeightsSpan]) -> None:
        """Add an answer's spans.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        for span in spans:
            self._see(span.version)
        self._check()

    @property
    def matters(self) -> bool:
        """Whether there is a limit, and weights to check."""
        return self._limit is not None and self._oldest is not None

    @property
    def lag(self) -> int | None:
        """How many versions the oldest weights are behind the current version; None if none is
        known.
        """
        return None if self._oldest is None else self._current - self._oldest

    def now(self, version: int) -> None:
        """Set the current version.

        Raises:
            MeshError: WEIGHTS_STALE.
        """
        if self._oldest is not None:
            self._see(version)
            self._check()

    def _see(self, version: int) -> None:
        if self._oldest is None:
            self._oldest = self._current = version
        elif version < self._oldest:
            self._oldest = version
        elif version > self._current:
            self._current = version

    def _check(self) -> None:
        if self._limit is None or self._oldest is None:
            return
        if self._current - self._oldest > self._limit:
            raise MeshError(
                errors_pb2.ERROR_REASON_WEIGHTS_STALE,
                f"the rollout began with weights version {self._oldest}, and the current version "
                f"is {self._current}; max_staleness allows a difference of {self._limit}",
                metadata={
                    "oldest": str(self._oldest),
                    "current": str(self._current),
                    "max_staleness": str(self._limit),
                },
            )


def diverged(call_id: str, position: int) -> MeshError:
    """TOKENS_DIVERGED."""
    return MeshError(
        errors_pb2.ERROR_REASON_TOKENS_DIVERGED,
        f"the prompt of call {call_id} must begin with the tokens of the previous call, unless the "
        f"model service declares a fork. The prompt differs from token {position} on, without a "
        "declared fork",
        metadata={"call_id": call_id, "position": str(position)},
    )


def invalid_tokens(capture: tokens_pb2.TokenCapture) -> MeshError | None:
    """CONTRACT_VIOLATED if captured tokens cannot be trained on: ids or log probabilities of a
    wrong length, with a wrong sign, or not finite; or side data that does not belong to the
    tokens. None if they can.
    """
    problem = token_problem(capture.prompt_token_ids) or token_problem(
        capture.output_token_ids, capture.logprobs
    )
    if not problem and capture.side_data:
        own = len(capture.prompt_token_ids) + len(capture.output_token_ids)
        total = capture.prompt_prefix_tokens + own // TOKEN_BYTES
        problem = side_data_problem(capture.side_data, total)
        problem = problem and f"side data {problem}"
    if not problem:
        return None
    return MeshError(
        errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
        f"the model service captured tokens that cannot be used: {problem}",
        metadata={"rule": "tokens"},
    )


def _check(
    above: _CallTokens | None, capture: tokens_pb2.TokenCapture
) -> tuple[SettledTokens, _CallTokens | None]:
    """The model service's declaration for the call, and the call whose tokens come before its
    own.
    """
    prefix = capture.prompt_prefix_tokens
    if above is None:
        # With nothing to stand on, a prefix cannot be put together again.
        return SettledTokens(capture, _fork(capture), 0 if prefix else None), None
    if capture.HasField("fork") and not prefix:
        return SettledTokens(capture, _fork(capture)), None
    if prefix == above.total:
        return SettledTokens(capture, _fork(capture)), above
    if prefix:
        return SettledTokens(capture, "", min(prefix, above.total)), None
    known = above.tokens()
    if not capture.prompt_token_ids.startswith(known):
        return SettledTokens(capture, "", common_tokens(known, capture.prompt_token_ids)), None
    # It came whole: what the parent has is not repeated.
    short = tokens_pb2.TokenCapture()
    short.CopyFrom(capture)
    short.prompt_token_ids = capture.prompt_token_ids[len(known) :]
    short.prompt_prefix_tokens = above.total
    return SettledTokens(short), above


def _side_rows(above: _CallTokens | None, capture: tokens_pb2.TokenCapture) -> dict[str, int]:
    """For each name, how many leading tokens have a row in the calls up to this one, without a
    gap.
    """
    rows = dict(above.side_rows) if above is not None else {}
    for side in capture.side_data:
        known = rows.get(side.name, 0)
        if side.first_token <= known:
            rows[side.name] = max(known, side.first_token + side.tokens)
    return rows


def _fork(capture: tokens_pb2.TokenCapture) -> str:
    if not capture.HasField("fork"):
        return ""
    try:
        name: str = tokens_pb2.ForkReason.Name(capture.fork.reason)
    except ValueError:
        return "OTHER"  # of a later contract
    return name.removeprefix("FORK_REASON_")
