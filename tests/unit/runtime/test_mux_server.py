"""A exchange of the mux, frame by frame: the end that serves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.telemetry.log_limit import LogLimit
from gymmesh_runtime.wire.mux import exchange
from gymmesh_runtime.wire.mux.frames import (
    Begin,
    Cancel,
    Chunk,
    Credit,
    Message,
    pack,
)
from gymmesh_runtime.wire.mux.sender import QUEUED_BYTES
from tests.unit.runtime.exchange_ends import (
    SMALL,
    STREAM,
    UNARY,
    Served,
    serving_end,
)
from tests.unit.runtime.probe import MODEL, stream, unary, until

Reason = errors_pb2.ErrorReason


async def test_a_call_is_served(served: Served) -> None:
    served.begin(1, unary("ok", request_id="r-1"))
    answer = (await served.hand.get()).message.payload
    assert model_pb2.CreateResponseResponse.FromString(answer).call_id == "r-1"
    end = await served.hand.get()
    assert end.WhichOneof("kind") == "end"
    assert not end.end.HasField("status")
    (context,) = served.probe.contexts
    assert 0 < context.time_remaining() <= 20.0


async def test_no_deadline_is_the_servers_own(served: Served) -> None:
    served.begin(1, unary("ok"), timeout_ms=0)
    await served.hand.get()
    assert 60.0 < served.probe.contexts[0].time_remaining() < 86_400.0


async def test_a_deadline_beyond_all_measure(served: Served) -> None:
    served.begin(1, unary("ok"), timeout_ms=2**64 - 1)
    assert (await served.hand.get()).WhichOneof("kind") == "message"


@pytest.mark.parametrize(
    "method", ["", "nonsense", f"{MODEL}/None", "gymmesh.mux.v1.MuxService/Exchange"]
)
async def test_a_method_that_is_not_there(served: Served, method: str) -> None:
    served.begin(1, b"", method=method)
    error = await served.hand.error()
    assert error.reason == Reason.ERROR_REASON_NOT_OFFERED
    assert error.metadata == {"method": method}


@pytest.mark.parametrize("method", [UNARY, STREAM])
async def test_a_request_that_cannot_be_read(served: Served, method: Any) -> None:
    served.begin(1, b"\xff\xff\xff", method=method.full_name, credit=1)
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_FIELD_INVALID
    served.begin(3, unary("ok"))
    assert (await served.hand.get()).call == 3


async def test_a_stream_sends_no_more_than_its_credit(served: Served) -> None:
    served.begin(1, stream("flood"), credit=3)
    for _ in range(3):
        assert (await served.hand.get()).WhichOneof("kind") == "message"
    assert await served.hand.quiet()
    served.hand.send(Credit(1, 2))
    for _ in range(2):
        assert (await served.hand.get()).WhichOneof("kind") == "message"
    assert await served.hand.quiet()
    assert not served.probe.closed.is_set()


async def test_a_stream_without_credit_ends_at_its_deadline(served: Served) -> None:
    served.begin(1, stream("flood"), timeout_ms=1000)
    error = await served.hand.error()
    assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
    assert error.metadata == {"method": STREAM.full_name}
    await asyncio.wait_for(served.probe.closed.wait(), 60)


async def test_chunks_that_do_not_come_end_the_call_at_its_deadline(served: Served) -> None:
    served.begin(1, b"", more=True, timeout_ms=100)
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_DEADLINE_PASSED
    served.hand.send(Chunk(1, b"late", True))
    served.begin(3, unary("ok"))
    assert (await served.hand.get()).call == 3  # the exchange lives on
    assert served.exchange.table._assembly.held == 0


async def test_the_time_of_the_chunks_counts(served: Served) -> None:
    request = unary("ok").SerializeToString()
    served.begin(1, request[:1], more=True, timeout_ms=10_000)
    await asyncio.sleep(0.2)
    served.hand.send(Chunk(1, request[1:], True))
    await served.hand.get()
    assert served.probe.contexts[0].deadline is not None
    assert served.probe.contexts[0].deadline - time.monotonic() < 9.9


@pytest.mark.parametrize("request_", [unary("hang"), stream("hang")])
async def test_a_cancelled_call_is_stopped_and_ended(served: Served, request_: Any) -> None:
    served.begin(1, request_, credit=9)
    await asyncio.wait_for(served.probe.started.wait(), 60)
    served.hand.send(Cancel(1))
    while (frame := await served.hand.get()).WhichOneof("kind") == "message":
        pass
    error = from_status(frame.end.status)
    assert error.reason == Reason.ERROR_REASON_CALLER_CANCELLED
    assert served.probe.cancelled.is_set() or served.probe.closed.is_set()


@pytest.mark.parametrize("more", [False, True])
async def test_a_call_cancelled_before_it_started_is_not_served(served: Served, more: bool) -> None:
    request = unary("ok").SerializeToString()
    served.hand.send(
        Begin(1, UNARY.full_name, 0, {}, request, more, 0),
        Cancel(1),
    )
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_CALLER_CANCELLED
    assert await served.hand.quiet()
    assert served.probe.requests == []


async def test_more_calls_than_the_link_takes_are_refused(served: Served) -> None:
    for number in range(1, 2 * SMALL.calls, 2):
        served.begin(number, unary("hang"))
    served.begin(999, unary("hang"))
    error = await served.hand.error()
    assert error.reason == Reason.ERROR_REASON_QUEUE_FULL


async def test_a_request_that_is_too_large_is_refused(served: Served) -> None:
    served.begin(1, b"x" * 600, more=True)
    served.hand.send(Chunk(1, b"x" * 600, False))
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
    served.hand.send(Chunk(1, b"x", True))
    served.begin(3, unary("ok"))
    assert (await served.hand.get()).call == 3


async def test_a_peer_that_does_not_read_fills_no_memory(served: Served) -> None:
    served.hand.reads.clear()
    big = "x" * 200_000
    for number in range(1, 2 * SMALL.calls, 2):
        served.begin(number, unary("ok", request_id=big))
    await until(lambda: served.exchange.sender.full)
    await asyncio.sleep(0.1)
    # What is beyond the bound waits in its call, and the calls are bounded.
    sender = served.exchange.sender
    assert sender._outbox.size + sender._chunks.size < QUEUED_BYTES + 1_000_000
    assert served.exchange.table.incoming > 0
    served.hand.reads.set()
    ended: set[int] = set()
    while len(ended) < SMALL.calls:
        frame = await served.hand.get()
        if frame.WhichOneof("kind") == "end":
            assert not frame.end.HasField("status")
            ended.add(frame.call)


async def test_who_asks_for_ever_more_and_reads_nothing_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_runtime.wire.mux.serving._MAX_QUEUED", 1000)
    served.hand.reads.clear()
    served.hand.send(
        *(Begin(2 * n + 1, UNARY.full_name, 0, {}, b"", False, 0) for n in range(3000))
    )
    await asyncio.wait_for(served.running, 60)
    assert served.exchange.broken


async def test_a_server_that_leaves_answers_what_it_has_and_refuses_more(served: Served) -> None:
    served.begin(1, stream("drip"), credit=9)
    for _ in range(3):
        await served.hand.get()
    served.exchange.leave("bye")
    served.begin(3, unary("ok"))
    frames = [await served.hand.get() for _ in range(8)]
    (farewell,) = [one for one in frames if one.WhichOneof("kind") == "go_away"]
    assert farewell.go_away.reason == "bye"
    (refused,) = [one for one in frames if one.call == 3]
    assert from_status(refused.end.status).reason == Reason.ERROR_REASON_DRAINING
    assert len([one for one in frames if one.call == 1]) == 6  # it goes on
    assert not served.running.done()
    served.hand.send(Cancel(1))
    await asyncio.wait_for(served.running, 60)
    assert not served.exchange.broken


async def test_a_call_that_crosses_an_idle_servers_farewell_is_told(served: Served) -> None:
    served.exchange.leave("bye")
    assert (await served.hand.get()).WhichOneof("kind") == "go_away"
    served.begin(1, unary("ok"))
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_DRAINING
    await asyncio.wait_for(served.running, 60)
    assert served.probe.requests == []


async def test_a_client_that_has_said_everything_is_still_answered(served: Served) -> None:
    served.begin(1, unary("ok", request_id="last"))
    served.hand.send_raw(None)
    assert b"last" in (await served.hand.get()).message.payload
    await asyncio.wait_for(served.running, 60)
    assert not served.exchange.broken


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        pack([Message(1, b"", False)]),
        pack([Chunk(1, b"", True)]),
        mux_pb2.ExchangeRequest(frames=[mux_pb2.Frame(call=1)]).SerializeToString(),
    ],
)
async def test_a_server_cuts_who_breaks_the_protocol(served: Served, data: bytes) -> None:
    served.begin(1, unary("hang"))
    await asyncio.wait_for(served.probe.started.wait(), 60)
    served.hand.send_raw(data)
    await asyncio.wait_for(served.running, 60)
    assert served.exchange.broken
    assert served.probe.cancelled.is_set()  # nobody is there to be answered
    assert served.exchange.error().reason == Reason.ERROR_REASON_MUX_BROKEN


async def test_a_peer_that_breaks_the_protocol_over_and_over_is_logged_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr(exchange, "_warnings", LogLimit(clock=lambda: now))
    before = _broken()
    for _ in range(20):
        await _break_one()
    (record,) = _warned(caplog)
    assert record.startswith(
        "hand broke the mux protocol, so the stream was closed: the peer sent 'message'"
    )
    now = 1.0
    await _break_one()
    assert _warned(caplog)[1:] == [f"{record} (more such errors since the last warning: 19)"]
    assert _broken() - before == 21


async def _break_one() -> None:
    async with serving_end() as served:
        served.hand.send_raw(pack([Message(1, b"", False)]))
        await asyncio.wait_for(served.running, 30)


def _broken() -> float:
    value = metrics.REGISTRY.get_sample_value("gymmesh_mux_broken_total", {"side": "server"})
    return value or 0.0


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "gymmesh.mux"]
