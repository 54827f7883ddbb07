"""A exchange of the mux, frame by frame: the end that calls."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.mux.calling import WINDOW, call_stream, call_unary
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.frames import (
    Begin,
    Cancel,
    End,
    GoAway,
    Message,
    pack,
)
from gymmesh_runtime.wire.mux.sender import QUEUED_BYTES
from tests.unit.runtime.exchange_ends import (
    STREAM,
    UNARY,
    Hand,
    call,
    end_of,
    failure,
    first_of,
)
from tests.unit.runtime.probe import MODEL, Probe, delta, stream, unary, until

Reason = errors_pb2.ErrorReason


async def test_a_deadline_cancels_the_call(client: tuple[Hand, Exchange]) -> None:
    hand, exchange = client
    error = await failure(call(exchange, unary("x"), timeout=0.1))
    assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
    begin = await hand.get()
    assert (begin.begin.timeout_ms, begin.begin.credit) == (100, 0)
    assert (await hand.get()).WhichOneof("kind") == "cancel"
    assert exchange.idle


async def test_a_stream_grants_credit_as_it_is_read(client: tuple[Hand, Exchange]) -> None:
    hand, exchange = client
    messages = call_stream(exchange, STREAM, stream("x"), 20.0, {})
    reading = first_of(messages)
    begin = await hand.get()
    assert begin.begin.credit == WINDOW
    frame = Message(begin.call, delta(1).SerializeToString(), False)
    hand.send(*([frame] * WINDOW))
    await reading
    assert await hand.quiet()  # one was read: nothing yet
    for _ in range(WINDOW - 1):
        await anext(messages)
    granted = 0
    while granted < WINDOW:
        granted += (await hand.get()).credit.messages
    assert granted == WINDOW
    hand.send(End(begin.call, None))
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


@pytest.mark.parametrize("metadata", [{"k": "\ud800"}, {"\ud800": "v"}, {"k": 5}, {5: "v"}])
async def test_metadata_that_cannot_be_sent_spoil_their_own_call_only(
    client: tuple[Hand, Exchange], metadata: Any
) -> None:
    hand, exchange = client
    other = call(exchange, unary("x"))
    bad = call_unary(exchange, UNARY, unary("x"), 20.0, metadata)
    assert (await failure(bad)).reason == Reason.ERROR_REASON_FIELD_INVALID
    number = (await hand.get()).call
    hand.send(Message(number, b"", False), End(number, None))
    await other


async def test_a_status_whose_details_cannot_be_read_goes_by_its_code(
    client: tuple[Hand, Exchange],
) -> None:
    hand, exchange = client
    pending = call(exchange, unary("x"))
    number = (await hand.get()).call
    status = status_pb2.Status(code=8)
    detail = status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo")
    detail.value = b"\xff\xff"
    hand.send(End(number, status))
    error = await failure(pending)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert exchange.usable


async def test_messages_before_an_error_are_read_first(client: tuple[Hand, Exchange]) -> None:
    hand, exchange = client
    messages = call_stream(exchange, STREAM, stream("x"), 20.0, {})
    reading = first_of(messages)
    number = (await hand.get()).call
    frame = Message(number, delta(1).SerializeToString(), False)
    hand.send(frame, frame)
    await reading
    hand.send_raw(None)  # the stream breaks with one message unread
    await anext(messages)
    error = await failure(anext(messages))
    assert error.reason == Reason.ERROR_REASON_MUX_BROKEN


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_that_cannot_be_read(
    client: tuple[Hand, Exchange], streaming: bool
) -> None:
    hand, exchange = client
    if streaming:
        messages = call_stream(exchange, STREAM, stream("x"), 20.0, {})
        pending = first_of(messages)
    else:
        pending = call(exchange, unary("x"))
    number = (await hand.get()).call
    hand.send(Message(number, b"\xff\xff", False), End(number, None))
    assert (await failure(pending)).reason == Reason.ERROR_REASON_CONTRACT_VIOLATED
    assert exchange.idle


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage",
        None,
        MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "hand: went away"),
        pack([Cancel(1)]),
        pack([]),
        pack([Message(77, b"", False)]),
    ],
)
async def test_a_broken_stream_ends_every_call_at_once(
    client: tuple[Hand, Exchange], broken: bytes | MeshError | None
) -> None:
    hand, exchange = client
    calls = [call(exchange, unary("x"), timeout=1000.0) for _ in range(5)]
    await hand.get()
    hand.send_raw(broken)
    errors = [await failure(one) for one in calls]
    for error in errors:
        assert error.reason == Reason.ERROR_REASON_MUX_BROKEN
        assert error.metadata == {"address": "hand"}
        assert error.message.startswith("hand: the connection broke during this call: ")
    assert len(set(map(id, errors))) == len(errors)  # a traceback of its own each
    assert (await failure(call(exchange, unary("x")))).reason == Reason.ERROR_REASON_MUX_BROKEN


async def test_a_client_that_leaves_waits_for_its_calls(client: tuple[Hand, Exchange]) -> None:
    hand, exchange = client
    pending = call(exchange, unary("x"))
    number = (await hand.get()).call
    exchange.leave("bye")
    assert (await hand.get()).WhichOneof("kind") == "go_away"
    assert not hand.ended.is_set()
    answer = model_pb2.CreateResponseResponse(call_id="a").SerializeToString()
    hand.send(Message(number, answer, False), End(number, None))
    assert (await pending).call_id == "a"
    await asyncio.wait_for(hand.ended.wait(), 60)


async def test_a_server_that_leaves_is_left(client: tuple[Hand, Exchange]) -> None:
    hand, exchange = client
    told = asyncio.Event()
    exchange.on_leaving = told.set
    hand.send(GoAway(0, "bye"))
    await asyncio.wait_for(told.wait(), 60)
    await asyncio.wait_for(hand.ended.wait(), 60)  # no call was in flight


async def test_of_a_long_farewell_a_part_is_logged(
    client: tuple[Hand, Exchange], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hand, exchange = client
    told = asyncio.Event()
    exchange.on_leaving = told.set
    hand.send(GoAway(0, "bye" * 100_000))
    await asyncio.wait_for(told.wait(), 60)
    (said,) = [one.getMessage() for one in caplog.records if "byebye" in one.getMessage()]
    assert len(said) < 1000


async def test_a_client_whose_peer_does_not_read_waits_within_its_deadline(
    client: tuple[Hand, Exchange],
) -> None:
    hand, exchange = client
    hand.reads.clear()
    big = unary("x", request_id="x" * 200_000)
    calls = [call(exchange, big, timeout=1.0) for _ in range(200)]
    await until(lambda: exchange.sender.full)
    sender = exchange.sender
    assert sender._outbox.size + sender._chunks.size < QUEUED_BYTES + 300_000
    for one in calls:
        assert (await failure(one)).reason == Reason.ERROR_REASON_DEADLINE_PASSED


async def test_either_end_may_call_the_other() -> None:
    hand, probe = Hand(), Probe()
    methods = {one.spec.full_name: one for one in Binding(MODEL, probe).methods.values()}
    async with end_of(hand, opener=False, methods=methods) as (exchange, _):
        pending = call(exchange, unary("x"))
        frame = await hand.get()
        assert frame.call == 2
        hand.send(Message(2, b"", False), End(2, None))
        await pending
    async with end_of(hand := Hand(), opener=True, methods=methods) as (exchange, _):
        hand.send(Begin(2, UNARY.full_name, 0, {}, unary("ok").SerializeToString(), False, 0))
        assert (await hand.get()).call == 2
