"""Batches that break the mux's protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.sizes import MIB
from gymmesh_runtime.wire.mux.frames import (
    Cancel,
    Chunk,
    Credit,
    End,
    Frame,
    Message,
)
from gymmesh_runtime.wire.mux.table import CallTable, Violation
from tests.unit.runtime.mux_frames import SMALL, begin, give, happened_in, opened

Reason = errors_pb2.ErrorReason


def unary(one: CallTable) -> None:
    opened(one, "sink")  # number 1


def unary_answered(one: CallTable) -> None:
    opened(one, "sink")
    give(one, Message(1, b"a", False))


def in_chunks(one: CallTable) -> None:
    opened(one, "sink")
    give(one, Message(1, b"a", True))


def streaming(one: CallTable) -> None:
    opened(one, "sink", streaming=True, credit=0)


def theirs(one: CallTable) -> None:
    give(one, begin(2))


def theirs_ended(one: CallTable) -> None:
    give(one, begin(2))
    one.end(2)


def theirs_dropped(one: CallTable) -> None:
    give(one, begin(2, more=True), Cancel(2))


def nothing(one: CallTable) -> None:
    """A link without calls."""


BIG = b"x" * (MIB + 1)


@pytest.mark.parametrize(
    ("before", "frame", "rule"),
    [
        (unary, begin(1), "'begin' is not allowed for a call"),
        (unary, Cancel(1), "'cancel' is not allowed for a call"),
        (unary, Credit(1, 1), "'credit' is not allowed for a call"),
        (unary, Chunk(1, b"x", True), "a chunk arrived for a message that was complete"),
        (unary, End(1, None), "ended with status OK and without a response"),
        (unary, Message(1, BIG, False), "more than 1048576 bytes"),
        (unary_answered, Message(1, b"b", False), "a second response"),
        (unary_answered, Chunk(1, b"b", True), "a chunk arrived for a message that was complete"),
        (in_chunks, Message(1, b"b", False), "before the last chunk"),
        (in_chunks, End(1, None), "before the last chunk"),
        (in_chunks, Chunk(1, BIG, True), "more than 1048576 bytes"),
        (streaming, Message(1, b"b", False), "without credit"),
        (nothing, Message(1, b"b", False), "the call 1, which is not open"),
        (nothing, End(1, None), "the call 1, which is not open"),
        (nothing, Message(2, b"b", False), "for call 2, which the peer opened itself"),
        (nothing, End(2, None), "for call 2, which the peer opened itself"),
        (nothing, Chunk(2, b"b", True), "the call 2, which is not open"),
        (nothing, begin(0), "the call number 0"),
        (nothing, begin(2, BIG), "more than 1048576 bytes"),
        (theirs, begin(2), "the peer used the call number 2 for a second call"),
        (theirs, Chunk(2, b"b", True), "a request that was complete"),
        (theirs, Credit(2, 2**32 - 1), "granted credit for more than"),
        (theirs_ended, Chunk(2, b"b", True), "the call 2, which is not open"),
        (theirs_dropped, Chunk(2, b"b", True), "a request that was complete"),
    ],
)
def test_what_breaks_the_protocol(
    before: Callable[[CallTable], None], frame: Frame, rule: str
) -> None:
    one = CallTable(opener=True)
    before(one)
    with pytest.raises(Violation, match=rule):
        give(one, frame)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_frame_of_an_unknown_kind(number: int) -> None:
    one = CallTable(opener=True)
    with pytest.raises(Violation):
        happened_in(one, mux_pb2.Frame(call=number))


def test_refusals_do_not_pile_up() -> None:
    one = CallTable(opener=False, limits=SMALL)
    one.leaving = True
    with pytest.raises(Violation, match="too many"):
        give(one, *(begin(number, more=True) for number in range(1, 100, 2)))
