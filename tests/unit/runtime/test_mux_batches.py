"""Batches that break the mux's protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.wire.batch import MIB
from gymmesh_runtime.wire.mux.frames import (
    CANCEL,
    CHUNK,
    CREDIT,
    END,
    MESSAGE,
    Frame,
)
from gymmesh_runtime.wire.mux.table import CallTable, Violation
from tests.unit.runtime.told import (
    SMALL,
    begin,
    give,
    give_batch,
    happened_in,
    opened,
)

Reason = errors_pb2.ErrorReason


def unary(one: CallTable) -> None:
    opened(one, "sink")  # number 1


def unary_answered(one: CallTable) -> None:
    opened(one, "sink")
    give(one, (MESSAGE, 1, b"a", False))


def in_chunks(one: CallTable) -> None:
    opened(one, "sink")
    give(one, (MESSAGE, 1, b"a", True))


def streaming(one: CallTable) -> None:
    opened(one, "sink", streaming=True, credit=0)


def theirs(one: CallTable) -> None:
    give(one, begin(2))


def theirs_ended(one: CallTable) -> None:
    give(one, begin(2))
    one.end(2)


def theirs_dropped(one: CallTable) -> None:
    give(one, begin(2, more=True), (CANCEL, 2))


def nothing(one: CallTable) -> None:
    """A link without calls."""


BIG = b"x" * (MIB + 1)


@pytest.mark.parametrize(
    ("before", "frame", "rule"),
    [
        (unary, begin(1), "'begin' came for a call"),
        (unary, (CANCEL, 1), "'cancel' came for a call"),
        (unary, (CREDIT, 1, 1), "'credit' came for a call"),
        (unary, (CHUNK, 1, b"x", True), "a chunk came for a message that was complete"),
        (unary, (END, 1, None), "ended well without a response"),
        (unary, (MESSAGE, 1, BIG, False), "more than 1048576 bytes"),
        (unary_answered, (MESSAGE, 1, b"b", False), "a second response"),
        (unary_answered, (CHUNK, 1, b"b", True), "a chunk came for a message that was complete"),
        (in_chunks, (MESSAGE, 1, b"b", False), "before the last chunk"),
        (in_chunks, (END, 1, None), "before the last chunk"),
        (in_chunks, (CHUNK, 1, BIG, True), "more than 1048576 bytes"),
        (streaming, (MESSAGE, 1, b"b", False), "without credit"),
        (nothing, (MESSAGE, 1, b"b", False), "the call 1, which is not open"),
        (nothing, (END, 1, None), "the call 1, which is not open"),
        (nothing, (MESSAGE, 2, b"b", False), "the call 2, which the sender had made"),
        (nothing, (END, 2, None), "the call 2, which the sender had made"),
        (nothing, (CHUNK, 2, b"b", True), "the call 2, which is not open"),
        (nothing, begin(0), "the call number 0"),
        (nothing, begin(2, BIG), "more than 1048576 bytes"),
        (theirs, begin(2), "the call number 2 was used again"),
        (theirs, (CHUNK, 2, b"b", True), "a request that was complete"),
        (theirs, (CREDIT, 2, 2**32 - 1), "of credit"),
        (theirs_ended, (CHUNK, 2, b"b", True), "the call 2, which is not open"),
        (theirs_dropped, (CHUNK, 2, b"b", True), "a request that was complete"),
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


def test_a_batch_without_a_frame() -> None:
    with pytest.raises(Violation, match="without a frame"):
        give_batch(CallTable(opener=True), mux_pb2.ExchangeRequest(), lambda event: None)


def test_refusals_do_not_pile_up() -> None:
    one = CallTable(opener=False, limits=SMALL)
    one.leaving = True
    with pytest.raises(Violation, match="too many"):
        give(one, *(begin(number, more=True) for number in range(1, 100, 2)))
