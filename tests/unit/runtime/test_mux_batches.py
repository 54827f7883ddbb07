"""Batches that break the mux's protocol, and calls that travel in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.wire.batch import MIB
from gymmesh_runtime.wire.mux.frames import (
    ANSWER,
    ASK,
    CANCEL,
    CHUNK,
    CREDIT,
    END,
    GO_AWAY,
    MESSAGE,
    Frame,
    pack,
    unpack,
)
from gymmesh_runtime.wire.mux.table import CallTable, Violation
from tests.unit.runtime.told import (
    SMALL,
    Began,
    Refused,
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


def asks(**columns: Any) -> mux_pb2.ExchangeRequest:
    """Calls 2 and 4 begin."""
    whole: dict[str, Any] = {
        "calls": [2, 4],
        "methods": [0, 0],
        "timeouts_ms": [5, 5],
        "payloads": [b"", b""],
        "names": ["s/M"],
    }
    return mux_pb2.ExchangeRequest(begins=mux_pb2.BeginColumns(**(whole | columns)))


def answers(*calls: int, payloads: list[bytes] | None = None) -> mux_pb2.ExchangeRequest:
    columns = mux_pb2.AnswerColumns(calls=calls, payloads=payloads or [b""] * len(calls))
    return mux_pb2.ExchangeRequest(answers=columns)


@pytest.mark.parametrize(
    ("before", "batch", "rule"),
    [
        (nothing, asks(calls=[2]), "same length"),
        (nothing, asks(methods=[0]), "same length"),
        (nothing, asks(timeouts_ms=[0] * 3), "same length"),
        (nothing, asks(payloads=[]), "same length"),
        (nothing, asks(methods=[0, 1]), "does not name"),
        (nothing, asks(names=[]), "does not name"),
        (nothing, asks(calls=[2, 2]), "the call number 2 was used again"),
        (nothing, asks(calls=[2, 0]), "the call number 0"),
        (nothing, asks(calls=[2, 1]), "the call 1, which its receiver has to make"),
        (nothing, asks(payloads=[b"", BIG]), "more than 1048576 bytes"),
        (theirs, asks(), "the call number 2 was used again"),
        (unary, answers(1, payloads=[b"", b""]), "same length"),
        (unary, answers(1, 1), "the call 1, which is not open"),
        (unary, answers(2), "the call 2, which is not open"),
        (unary, answers(1, payloads=[BIG]), "more than 1048576 bytes"),
        (unary_answered, answers(1), "has one already"),
        (in_chunks, answers(1), "has one already"),
        (streaming, answers(1), "is a stream"),
    ],
)
def test_what_breaks_the_protocol_in_columns(
    before: Callable[[CallTable], None], batch: mux_pb2.ExchangeRequest, rule: str
) -> None:
    one = CallTable(opener=True)
    before(one)
    with pytest.raises(Violation, match=rule):
        give_batch(one, batch, lambda event: None)


def test_who_sends_columns_reads_them() -> None:
    one = CallTable(opener=False)
    give(one, begin(1))
    assert not one.columns
    give_batch(one, asks(calls=[3, 5]), lambda event: None)
    assert one.columns


def told_of(one: CallTable, batches: Iterable[mux_pb2.ExchangeRequest]) -> list[Any]:
    """What happens, as it can be compared between two tables; at last whether a rule broke."""
    events: list[Any] = []

    def tell(event: Any) -> None:
        if isinstance(event, Began):
            call = event.call
            what = (call.number, call.method, call.timeout_ms, dict(call.metadata), call.credit)
            events.append((what, event.payload))
        elif isinstance(event, Refused):
            events.append((event.number, event.error.reason))
        else:
            events.append(event)

    broke = False
    for batch in batches:
        try:
            give_batch(one, batch, tell)
        except Violation:
            broke = True
            break
    return [*events, broke, one.ours, one.theirs]


@given(
    asked=st.lists(st.integers(0, 9), max_size=6),
    answered=st.lists(st.integers(0, 9), max_size=6),
    opener=st.booleans(),
    leaving=st.booleans(),
    data=st.data(),
)
def test_columns_say_what_frames_say(
    asked: list[int], answered: list[int], opener: bool, leaving: bool, data: st.DataObject
) -> None:
    asks: list[Frame] = [(ASK, n, f"s/{n % 3}", n * 7, bytes(n)) for n in asked]
    answers: list[Frame] = [(ANSWER, n, bytes([n])) for n in answered]
    padding: list[Frame] = [(GO_AWAY, 0, "so that columns are worth it")] * 4
    begun = data.draw(st.lists(st.integers(1, 9).filter(lambda n: n % 2 != opener), max_size=2))
    refused = data.draw(st.lists(st.sampled_from(begun), max_size=1)) if begun else []
    answered_early = data.draw(st.booleans())
    cancelled = data.draw(st.booleans())
    seen: list[list[Any]] = []
    for columns in (True, False):
        one = CallTable(opener=opener, limits=SMALL)
        for sink in "abc":
            opened(one, sink)
        first = 1 if opener else 2
        if answered_early:
            give(one, (MESSAGE, first, b"early", False))
        if cancelled:
            one.cancel(first + 2)
        for number in dict.fromkeys(begun):
            give(one, begin(number, more=number in refused))
            if number in refused:
                one.end(number)
        one.leaving = leaving
        sent = [*asks, *padding, *answers]
        parts = [sent] if columns else [[frame] for frame in sent]
        seen.append(told_of(one, (unpack(pack(part, columns=columns)) for part in parts)))
    assert seen[0] == seen[1]


def test_refusals_do_not_pile_up() -> None:
    one = CallTable(opener=False, limits=SMALL)
    one.leaving = True
    with pytest.raises(Violation, match="too many"):
        give(one, *(begin(number, more=True) for number in range(1, 100, 2)))
