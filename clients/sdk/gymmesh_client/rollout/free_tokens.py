"""Which sampled tokens a trainer learns from: those that the policy sampled freely. Pure.

One place for trainers, which have messages, and for exports, which have rows: both have the same
names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class _Span(Protocol):
    @property
    def first_token(self) -> int: ...

    @property
    def tokens(self) -> int: ...


class _Call(Protocol):
    @property
    def trainable(self) -> bool: ...

    @property
    def side_call(self) -> str: ...


S = TypeVar("S", bound=_Span)


def is_learned(call: _Call) -> bool:
    """Whether a trainer learns from a call: the policy's own, in the conversation."""
    return call.trainable and not call.side_call


def constrained_stretches(spans: Iterable[S], count: int) -> list[tuple[int, int, S]]:
    """The stretches [first, end) of a call's `count` output tokens that were not sampled freely,
    each with its span; in order, without overlap, within the output.
    """
    found, at = list[tuple[int, int, S]](), 0
    for span in sorted(spans, key=lambda one: one.first_token):
        first, end = max(span.first_token, at), min(span.first_token + span.tokens, count)
        if end > first:
            found.append((first, end, span))
            at = end
    return found


def free_stretches(spans: Iterable[S], count: int) -> list[tuple[int, int]]:
    """The stretches [first, end) of a call's `count` output tokens that were sampled freely: all
    but what was forced or bound by a grammar.
    """
    found, at = list[tuple[int, int]](), 0
    for first, end, _ in constrained_stretches(spans, count):
        if first > at:
            found.append((at, first))
        at = end
    if count > at:
        found.append((at, count))
    return found
