"""The mux's call table: every transition, legal or not, without a socket."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import pytest
from google.rpc import status_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.errors import MeshError, to_status
from gymmesh_runtime.wire.mux.calls import (
    CallRefused,
    Cancelled,
    Credited,
    PeerLeaves,
    Received,
    Receiving,
)
from gymmesh_runtime.wire.mux.frames import (
    Cancel,
    Chunk,
    Credit,
    End,
    Frame,
    GoAway,
    Message,
    UnaryAnswer,
)
from gymmesh_runtime.wire.mux.table import CallTable, Violation
from tests.unit.runtime.mux_frames import SMALL, Arrived, Ended, begin, give, happened_in, opened

Reason = errors_pb2.ErrorReason
FAILED = to_status(MeshError(Reason.ERROR_REASON_QUEUE_FULL, "full"))


# ---- our calls ----------------------------------------------------------------------------


def test_numbers_are_odd_for_the_opener_and_never_used_again() -> None:
    opener, other = CallTable(opener=True), CallTable(opener=False)
    assert [opened(opener, "a"), opened(opener, "b")] == [1, 3]
    opener.cancel(1)
    assert opened(opener, "c") == 5
    assert [opened(other, "a"), opened(other, "b")] == [2, 4]


def test_a_unary_call_ends_with_its_response() -> None:
    one = CallTable(opener=True)
    opened(one, "sink")
    assert give(one, Message(1, b"answer", False)) == []
    assert give(one, End(1, None)) == [Ended("sink", None, b"answer")]
    assert one.outgoing == 0


def test_a_unary_call_ends_with_an_error() -> None:
    one = CallTable(opener=True)
    opened(one, "sink")
    (event,) = give(one, End(1, FAILED))
    assert (event.name, event.status) == ("sink", FAILED)


def test_a_status_of_zero_is_ok() -> None:
    one = CallTable(opener=True)
    opened(one, "sink", streaming=True, credit=1)
    assert give(one, End(1, status_pb2.Status())) == [Ended("sink", None, b"")]


def test_a_stream_brings_its_messages_one_by_one() -> None:
    one = CallTable(opener=True)
    opened(one, "sink", streaming=True, credit=2)
    assert give(one, Message(1, b"a", False), Message(1, b"b", False)) == [
        Arrived("sink", b"a"),
        Arrived("sink", b"b"),
    ]
    assert one.grant(1, 1)
    assert give(one, Message(1, b"c", False), End(1, None)) == [
        Arrived("sink", b"c"),
        Ended("sink", None, b""),
    ]
    assert not one.grant(1, 1)


def test_chunks_are_put_together() -> None:
    one = CallTable(opener=True)
    opened(one, "u")
    opened(one, "s", streaming=True, credit=1)
    happened = give(
        one,
        Message(1, b"ab", True),
        Message(3, b"xy", True),
        Chunk(1, b"cd", False),
        Chunk(3, b"z", True),
        Chunk(1, b"e", True),
        End(1, None),
    )
    assert happened == [Arrived("s", b"xyz"), Ended("u", None, b"abcde")]


def test_a_cancelled_call_is_over_for_us_and_the_rest_of_it_is_let_pass() -> None:
    one = CallTable(opener=True)
    opened(one, "sink", streaming=True, credit=9)
    give(one, Message(1, b"ab", True))
    assert one.cancel(1)
    assert not one.cancel(1)
    late = [Chunk(1, b"cd", True), Message(1, b"e", False), End(1, None)]
    assert give(one, *late) == []
    with pytest.raises(Violation):  # the end was the last of it
        give(one, Message(1, b"f", False))


def test_a_response_without_room_fails_that_call_only() -> None:
    one = CallTable(opener=True, limits=SMALL)
    opened(one, "big")
    opened(one, "small")
    give(one, Message(1, b"x" * 60, True))
    (failed,) = give(one, Chunk(1, b"x" * 41, False))
    assert failed.name == "big"
    assert failed.error.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
    assert failed.error.metadata == {"limit_bytes": "100"}
    give(one, Chunk(1, b"x", True), End(1, None))
    give(one, Message(3, b"ok", False))
    assert give(one, End(3, None)) == [Ended("small", None, b"ok")]


def test_responses_under_way_share_a_bound() -> None:
    one = CallTable(opener=True, limits=SMALL)
    for sink in "ab":
        opened(one, sink)
    give(one, Message(1, b"x" * 90, True))
    (failed,) = give(one, Message(3, b"x" * 90, True))
    assert (failed.name, failed.error.reason) == ("b", Reason.ERROR_REASON_QUEUE_FULL)
    assert give(one, Chunk(1, b"", True), End(1, None))
    opened(one, "c")
    assert give(one, Message(5, b"x" * 90, True)) == []  # there is room again


def test_calls_in_flight_are_bounded_cancelled_ones_too() -> None:
    one = CallTable(opener=True, limits=SMALL)
    for _ in range(4):
        opened(one, "sink")
    one.cancel(1)
    with pytest.raises(MeshError) as caught:
        opened(one, "sink")
    assert caught.value.reason == Reason.ERROR_REASON_QUEUE_FULL
    give(one, End(1, FAILED))
    opened(one, "sink")


def test_after_go_away_no_call_begins() -> None:
    one = CallTable(opener=True)
    opened(one, "sink")
    assert give(one, GoAway(0, "tired")) == [PeerLeaves("tired")]
    with pytest.raises(MeshError) as caught:
        opened(one, "sink")
    assert caught.value.reason == Reason.ERROR_REASON_DRAINING
    give(one, Message(1, b"a", False))
    assert give(one, End(1, None))


def test_a_stream_that_ends_gives_all_its_calls_back() -> None:
    one = CallTable(opener=True)
    for sink in "abc":
        opened(one, sink)
    one.cancel(3)
    give(one, begin(2), begin(4, more=True))
    made, served = one.close()
    assert [call.number for call in made] == [1, 5]
    assert [call.number for call in served] == [2, 4]
    assert (one.outgoing, one.incoming, one._assembly.held) == (0, 0, 0)


# ---- their calls --------------------------------------------------------------------------


def test_a_call_of_theirs_begins_and_ends() -> None:
    one = CallTable(opener=False)
    (began,) = give(one, begin(1, b"question", credit=3))
    call = began.call
    assert (call.number, call.method, call.timeout_ms, call.credit) == (1, "s/M", 500, 3)
    assert (call.metadata, began.request) == ({"k": "v"}, b"question")
    assert give(one, Credit(1, 2)) == [Credited(call)]
    assert call.credit == 5
    assert one.end(1)
    assert not one.end(1)


def test_a_large_request_begins_with_its_last_chunk() -> None:
    one = CallTable(opener=False)
    (receiving,) = give(one, begin(1, b"ab", more=True))
    assert isinstance(receiving, Receiving)
    assert give(one, Chunk(1, b"cd", False)) == []
    (began,) = give(one, Chunk(1, b"e", True))
    assert (began.call, began.request) == (receiving.call, b"abcde")


def test_what_crosses_our_end_is_let_pass() -> None:
    one = CallTable(opener=False)
    give(one, begin(1))
    one.end(1)
    assert give(one, Cancel(1), Credit(1, 5)) == []


def test_a_request_given_up_on_is_let_pass_to_its_last_chunk() -> None:
    one = CallTable(opener=False)
    give(one, begin(1, more=True))
    one.end(1)  # its deadline, say
    assert give(one, Chunk(1, b"x", False), Chunk(1, b"x", True)) == []
    with pytest.raises(Violation):
        give(one, Chunk(1, b"x", True))


def test_a_cancelled_request_still_needs_its_end() -> None:
    one = CallTable(opener=False)
    give(one, begin(1, more=True))
    (dropped,) = give(one, Cancel(1))
    assert dropped.call.number == 1
    assert one.end(1)


@pytest.mark.parametrize(
    ("limit", "sent", "reason"),
    [
        ("calls", [begin(n) for n in (1, 3, 5, 7, 9)], Reason.ERROR_REASON_QUEUE_FULL),
        (
            "message",
            [begin(1, b"x" * 60, more=True), Chunk(1, b"x" * 41, True)],
            Reason.ERROR_REASON_MESSAGE_TOO_LARGE,
        ),
        (
            "assembly",
            [begin(1, b"x" * 90, more=True), begin(3, b"x" * 90, more=True)],
            Reason.ERROR_REASON_QUEUE_FULL,
        ),
    ],
)
def test_bounds_refuse_one_call(limit: str, sent: list[Frame], reason: int) -> None:
    one = CallTable(opener=False, limits=SMALL)
    refused = give(one, *sent)[-1]
    assert isinstance(refused, CallRefused), limit
    assert refused.error.reason == reason
    assert refused.number == sent[-1].call
    assert not one.end(refused.number)


def test_who_is_leaving_refuses_and_lets_the_chunks_pass() -> None:
    one = CallTable(opener=False)
    one.leaving = True
    (refused,) = give(one, begin(1, more=True))
    assert refused.error.reason == Reason.ERROR_REASON_DRAINING
    assert give(one, Chunk(1, b"x", False), Chunk(1, b"x", True)) == []


# ---- all together -------------------------------------------------------------------------


_KINDS = st.sampled_from(["begin", "chunk", "message", "end", "cancel", "credit", "go_away"])


@st.composite
def garbage(draw: st.DrawFn) -> mux_pb2.Frame:
    """Any frame at all."""
    frame = mux_pb2.Frame(call=draw(st.integers(0, 12)))
    kind = draw(_KINDS)
    part = getattr(frame, kind)
    part.SetInParent()
    payload = draw(st.binary(max_size=70))
    flag = draw(st.booleans())
    if kind in ("begin", "message"):
        part.payload, part.more = payload, flag
    elif kind == "chunk":
        part.payload, part.last = payload, flag
    elif kind == "credit":
        part.messages = draw(st.integers(0, 2**32 - 1))
    elif kind == "end" and flag:
        part.status.CopyFrom(FAILED)
    return frame


@given(st.booleans(), st.lists(garbage(), max_size=40), st.data())
def test_garbage_is_a_violation_or_nothing_worse(
    opener: bool, sent: list[mux_pb2.Frame], data: st.DataObject
) -> None:
    one = CallTable(opener=opener, limits=SMALL)
    for frame in sent:
        if one.outgoing < 4 and not one.peer_leaving and data.draw(st.booleans()):
            with suppress(MeshError):  # cancelled ones count, too
                opened(one, "sink", streaming=data.draw(st.booleans()), credit=2)
        with suppress(Violation):  # a link would end here; the table must bear more
            happened_in(one, frame)
        assert one.incoming <= SMALL.calls
        assert 0 <= one._assembly.held <= SMALL.assembly_bytes


class TwoTables(RuleBasedStateMachine):
    """Two ends that keep to the rules: no frame in any order breaks one, and nothing is left."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = {True: CallTable(opener=True), False: CallTable(opener=False)}
        self.sent: dict[bool, deque[Frame]] = {True: deque(), False: deque()}
        self.calling: dict[bool, dict[int, dict[str, Any]]] = {True: {}, False: {}}
        self.serving: dict[bool, dict[int, Any]] = {True: {}, False: {}}
        self.opened = self.closed = 0

    def send(self, side: bool, *out: Frame) -> None:
        self.sent[side].extend(out)

    @rule(side=st.booleans(), streaming=st.booleans(), chunked=st.booleans())
    def call(self, side: bool, streaming: bool, chunked: bool) -> None:
        if self.ends[side].peer_leaving:
            return
        sink: dict[str, Any] = {"got": []}
        number = opened(self.ends[side], sink, streaming=streaming, credit=2 if streaming else 0)
        sink["number"] = number
        self.calling[side][number] = sink
        self.opened += 1
        self.send(side, begin(number, b"s" if streaming else b"u", more=chunked, credit=2))
        if chunked:
            self.send(side, Chunk(number, b"1", False), Chunk(number, b"2", True))

    @rule(side=st.booleans(), data=st.data())
    def cancel(self, side: bool, data: st.DataObject) -> None:
        if self.calling[side]:
            number = data.draw(st.sampled_from(sorted(self.calling[side])))
            if self.ends[side].cancel(number):
                self.send(side, Cancel(number))
                del self.calling[side][number]
                self.closed += 1

    @rule(side=st.booleans(), data=st.data())
    def grant(self, side: bool, data: st.DataObject) -> None:
        if self.calling[side]:
            number = data.draw(st.sampled_from(sorted(self.calling[side])))
            if self.ends[side].grant(number, 1):
                self.send(side, Credit(number, 1))

    @rule(side=st.booleans(), data=st.data(), well=st.booleans())
    def answer(self, side: bool, data: st.DataObject, well: bool) -> None:
        if not self.serving[side]:
            return
        number = data.draw(st.sampled_from(sorted(self.serving[side])))
        call, payload = self.serving[side][number]
        if payload.startswith(b"s") and call.credit > 0 and well:
            call.credit -= 1
            self.send(side, Message(number, b"m", True), Chunk(number, b"n", True))
            return
        if not payload.startswith(b"s") and well:
            self.send(side, UnaryAnswer(number, b"m"))
        else:
            self.send(side, End(number, None if well else FAILED))
        assert self.ends[side].end(number)
        del self.serving[side][number]

    @rule(side=st.booleans())
    def leave(self, side: bool) -> None:
        if not self.ends[side].leaving:
            self.ends[side].leaving = True
            self.send(side, GoAway(0, "done"))

    @rule(side=st.booleans(), count=st.integers(1, 12))
    def deliver(self, side: bool, count: int) -> None:
        sent = [self.sent[side].popleft() for _ in range(min(count, len(self.sent[side])))]
        if not sent:
            return
        for event in give(self.ends[not side], *sent):
            self.happened(not side, event)

    def happened(self, side: bool, event: Any) -> None:
        if isinstance(event, Received):
            self.serving[side][event.call.number] = (event.call, event.request)
        elif isinstance(event, CallRefused):
            self.send(side, End(event.number, FAILED))
        elif isinstance(event, Cancelled):
            self.ends[side].end(event.call.number)
            self.serving[side].pop(event.call.number, None)
            self.send(side, End(event.call.number, FAILED))
        elif isinstance(event, Ended):
            del self.calling[side][event.name["number"]]
            self.closed += 1

    @invariant()
    def counted(self) -> None:
        for side, end in self.ends.items():
            assert end.outgoing == len(self.calling[side])
        assert self.opened == self.closed + sum(end.outgoing for end in self.ends.values())

    def teardown(self) -> None:
        for _ in range(4):  # all that is under way arrives, and all that is served ends
            for side in (True, False):
                self.deliver(side, len(self.sent[side]))
                for number in list(self.serving[side]):
                    self.send(side, End(number, FAILED))
                    assert self.ends[side].end(number)
                    del self.serving[side][number]
        for end in self.ends.values():
            assert (end.outgoing, end.incoming, end._assembly.held) == (0, 0, 0)
        assert self.opened == self.closed


TwoTables.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTwoTables = TwoTables.TestCase
