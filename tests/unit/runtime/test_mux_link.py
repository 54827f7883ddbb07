"""One end of the mux against a peer played by hand, frame by frame, without a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.wire.mux.caller import WINDOW
from gymmesh_runtime.wire.mux.frames import (
    BEGIN,
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
from gymmesh_runtime.wire.mux.link import Link
from gymmesh_runtime.wire.mux.sender import QUEUED_BYTES
from gymmesh_runtime.wire.mux.table import TableLimits
from tests.unit.runtime.probe import MODEL, Probe, delta, stream, unary, until

pytestmark = pytest.mark.timeout(60)
Reason = errors_pb2.ErrorReason

UNARY = methods_of(MODEL)["CreateResponse"]
STREAM = methods_of(MODEL)["StreamResponse"]
SMALL = TableLimits(calls=100, message_bytes=1000, assembly_bytes=1500, call_bytes=0)


class Hand:
    """The other end: what it sends is written by the test, what it gets is read there."""

    def __init__(self) -> None:
        self._to: asyncio.Queue[bytes | MeshError | None] = asyncio.Queue()
        self._from: asyncio.Queue[bytes] = asyncio.Queue()
        self._frames: list[mux_pb2.Frame] = []
        self.reads = asyncio.Event()  # cleared: it does not read
        self.reads.set()
        self.ended = asyncio.Event()  # the link said that it sends no more

    # the link's side

    async def read(self) -> bytes | None:
        data = await self._to.get()
        if isinstance(data, MeshError):
            raise data
        return data

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self._from.put_nowait(data)

    async def end(self) -> None:
        self.ended.set()

    # the test's side

    def send(self, *frames: Frame) -> None:
        self.send_raw(pack(frames))

    def send_raw(self, data: bytes | MeshError | None) -> None:
        self._to.put_nowait(data)

    async def get(self) -> mux_pb2.Frame:
        while not self._frames:
            self._frames = list(unpack(await asyncio.wait_for(self._from.get(), 10)).frames)
        return self._frames.pop(0)

    async def get_batch(self) -> mux_pb2.ExchangeRequest:
        assert not self._frames
        return unpack(await asyncio.wait_for(self._from.get(), 10))

    async def quiet(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a while."""
        await asyncio.sleep(seconds)
        return not self._frames and self._from.empty()

    async def error(self) -> MeshError:
        """The error of the next frame, which must be an end."""
        frame = await self.get()
        assert frame.WhichOneof("kind") == "end", frame
        return from_status(frame.end.status)


class Served:
    """A server's end."""

    def __init__(self, hand: Hand, probe: Probe, link: Link, running: asyncio.Task[None]) -> None:
        self.hand = hand
        self.probe = probe
        self.link = link
        self.running = running

    def begin(self, number: int, request: Any, **fields: Any) -> None:
        method = STREAM if isinstance(request, model_pb2.StreamResponseRequest) else UNARY
        self.hand.send(
            (
                BEGIN,
                number,
                fields.get("method", method.full_name),
                fields.get("timeout_ms", 20_000),
                {},
                request if isinstance(request, bytes) else request.SerializeToString(),
                fields.get("more", False),
                fields.get("credit", 0),
            )
        )


@asynccontextmanager
async def end_of(hand: Hand, **options: Any) -> AsyncIterator[tuple[Link, asyncio.Task[None]]]:
    link = Link(hand, peer="hand", **options)
    running = asyncio.create_task(link.run())
    try:
        yield link, running
    finally:
        link.cut()
        await asyncio.wait_for(running, 10)


@asynccontextmanager
async def serving_end() -> AsyncIterator[Served]:
    """A server's end, with small limits."""
    hand, probe = Hand(), Probe()
    methods = {one.spec.full_name: one for one in Binding(MODEL, probe).methods.values()}
    async with end_of(hand, opener=False, methods=methods, limits=SMALL) as (link, running):
        yield Served(hand, probe, link, running)


@asynccontextmanager
async def calling_end() -> AsyncIterator[tuple[Hand, Link]]:
    """A client's end."""
    hand = Hand()
    async with end_of(hand, opener=True) as (link, _):
        yield hand, link


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving_end() as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[tuple[Hand, Link]]:
    async with calling_end() as one:
        yield one


def call(link: Link, request: Any, timeout: float = 20.0) -> asyncio.Task[Any]:
    return asyncio.create_task(link.caller.unary(UNARY, request, timeout, {}))


def first_of(messages: AsyncIterator[Any]) -> asyncio.Task[Any]:
    async def read() -> Any:
        return await anext(messages)

    return asyncio.create_task(read())


async def failure(awaitable: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, 20)
    return caught.value


# ---- the server's end ---------------------------------------------------------------------


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
    served.hand.send((CREDIT, 1, 2))
    for _ in range(2):
        assert (await served.hand.get()).WhichOneof("kind") == "message"
    assert await served.hand.quiet()
    assert not served.probe.closed.is_set()


async def test_a_stream_without_credit_ends_at_its_deadline(served: Served) -> None:
    served.begin(1, stream("flood"), timeout_ms=1000)
    error = await served.hand.error()
    assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
    assert error.metadata == {"method": STREAM.full_name}
    await asyncio.wait_for(served.probe.closed.wait(), 10)


async def test_chunks_that_do_not_come_end_the_call_at_its_deadline(served: Served) -> None:
    served.begin(1, b"", more=True, timeout_ms=100)
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_DEADLINE_PASSED
    served.hand.send((CHUNK, 1, b"late", True))
    served.begin(3, unary("ok"))
    assert (await served.hand.get()).call == 3  # the link lives on
    assert served.link.table.assembling == 0


async def test_the_time_of_the_chunks_counts(served: Served) -> None:
    request = unary("ok").SerializeToString()
    served.begin(1, request[:1], more=True, timeout_ms=10_000)
    await asyncio.sleep(0.2)
    served.hand.send((CHUNK, 1, request[1:], True))
    await served.hand.get()
    assert served.probe.contexts[0].deadline is not None
    assert served.probe.contexts[0].deadline - time.monotonic() < 9.9


@pytest.mark.parametrize("request_", [unary("hang"), stream("hang")])
async def test_a_cancelled_call_is_stopped_and_ended(served: Served, request_: Any) -> None:
    served.begin(1, request_, credit=9)
    await asyncio.wait_for(served.probe.started.wait(), 10)
    served.hand.send((CANCEL, 1))
    while (frame := await served.hand.get()).WhichOneof("kind") == "message":
        pass
    error = from_status(frame.end.status)
    assert error.reason == Reason.ERROR_REASON_CALLER_CANCELLED
    assert served.probe.cancelled.is_set() or served.probe.closed.is_set()


@pytest.mark.parametrize("more", [False, True])
async def test_a_call_cancelled_before_it_started_is_not_served(served: Served, more: bool) -> None:
    request = unary("ok").SerializeToString()
    served.hand.send(
        (BEGIN, 1, UNARY.full_name, 0, {}, request, more, 0),
        (CANCEL, 1),
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
    served.hand.send((CHUNK, 1, b"x" * 600, False))
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
    served.hand.send((CHUNK, 1, b"x", True))
    served.begin(3, unary("ok"))
    assert (await served.hand.get()).call == 3


async def test_a_peer_that_does_not_read_fills_no_memory(served: Served) -> None:
    served.hand.reads.clear()
    big = "x" * 200_000
    for number in range(1, 2 * SMALL.calls, 2):
        served.begin(number, unary("ok", request_id=big))
    await until(lambda: served.link.sender.full)
    await asyncio.sleep(0.1)
    # What is beyond the bound waits in its call, and the calls are bounded.
    assert served.link.sender.queued_bytes < QUEUED_BYTES + 1_000_000
    assert served.link.table.theirs > 0
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
    monkeypatch.setattr("gymmesh_runtime.wire.mux.callee._MAX_QUEUED", 1000)
    served.hand.reads.clear()
    served.hand.send(
        *((BEGIN, 2 * n + 1, UNARY.full_name, 0, {}, b"", False, 0) for n in range(3000))
    )
    await asyncio.wait_for(served.running, 10)
    assert served.link.broken


async def test_a_server_that_leaves_answers_what_it_has_and_refuses_more(served: Served) -> None:
    served.begin(1, stream("drip"), credit=9)
    for _ in range(3):
        await served.hand.get()
    served.link.leave("bye")
    served.begin(3, unary("ok"))
    frames = [await served.hand.get() for _ in range(8)]
    (farewell,) = [one for one in frames if one.WhichOneof("kind") == "go_away"]
    assert farewell.go_away.reason == "bye"
    (refused,) = [one for one in frames if one.call == 3]
    assert from_status(refused.end.status).reason == Reason.ERROR_REASON_DRAINING
    assert len([one for one in frames if one.call == 1]) == 6  # it goes on
    assert not served.running.done()
    served.hand.send((CANCEL, 1))
    await asyncio.wait_for(served.running, 10)
    assert not served.link.broken


async def test_a_call_that_crosses_an_idle_servers_farewell_is_told(served: Served) -> None:
    served.link.leave("bye")
    assert (await served.hand.get()).WhichOneof("kind") == "go_away"
    served.begin(1, unary("ok"))
    assert (await served.hand.error()).reason == Reason.ERROR_REASON_DRAINING
    await asyncio.wait_for(served.running, 10)
    assert served.probe.requests == []


async def test_a_client_that_has_said_everything_is_still_answered(served: Served) -> None:
    served.begin(1, unary("ok", request_id="last"))
    served.hand.send_raw(None)
    assert b"last" in (await served.hand.get()).message.payload
    await asyncio.wait_for(served.running, 10)
    assert not served.link.broken


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        pack([(MESSAGE, 1, b"", False)]),
        pack([(CHUNK, 1, b"", True)]),
        mux_pb2.ExchangeRequest(frames=[mux_pb2.Frame(call=1)]).SerializeToString(),
    ],
)
async def test_a_server_cuts_who_breaks_the_protocol(served: Served, data: bytes) -> None:
    served.begin(1, unary("hang"))
    await asyncio.wait_for(served.probe.started.wait(), 10)
    served.hand.send_raw(data)
    await asyncio.wait_for(served.running, 10)
    assert served.link.broken
    assert served.probe.cancelled.is_set()  # nobody is there to be answered
    assert served.link.error().reason == Reason.ERROR_REASON_MUX_BROKEN


# ---- the client's end ---------------------------------------------------------------------


async def test_a_deadline_cancels_the_call(client: tuple[Hand, Link]) -> None:
    hand, link = client
    error = await failure(call(link, unary("x"), timeout=0.1))
    assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
    begin = await hand.get()
    assert (begin.begin.timeout_ms, begin.begin.credit) == (100, 0)
    assert (await hand.get()).WhichOneof("kind") == "cancel"
    assert link.idle


async def test_a_stream_grants_credit_as_it_is_read(client: tuple[Hand, Link]) -> None:
    hand, link = client
    messages = link.caller.stream(STREAM, stream("x"), 20.0, {})
    reading = first_of(messages)
    begin = await hand.get()
    assert begin.begin.credit == WINDOW
    frame = (MESSAGE, begin.call, delta(1).SerializeToString(), False)
    hand.send(*([frame] * WINDOW))
    await reading
    assert await hand.quiet()  # one was read: nothing yet
    for _ in range(WINDOW - 1):
        await anext(messages)
    granted = 0
    while granted < WINDOW:
        granted += (await hand.get()).credit.messages
    assert granted == WINDOW
    hand.send((END, begin.call, None))
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


@pytest.mark.parametrize("metadata", [{"k": "\ud800"}, {"\ud800": "v"}, {"k": 5}, {5: "v"}])
async def test_metadata_that_cannot_be_sent_spoil_their_own_call_only(
    client: tuple[Hand, Link], metadata: Any
) -> None:
    hand, link = client
    other = call(link, unary("x"))
    bad = link.caller.unary(UNARY, unary("x"), 20.0, metadata)
    assert (await failure(bad)).reason == Reason.ERROR_REASON_FIELD_INVALID
    number = (await hand.get()).call
    hand.send((MESSAGE, number, b"", False), (END, number, None))
    await other


async def test_a_status_whose_details_cannot_be_read_goes_by_its_code(
    client: tuple[Hand, Link],
) -> None:
    hand, link = client
    pending = call(link, unary("x"))
    number = (await hand.get()).call
    status = status_pb2.Status(code=8)
    detail = status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo")
    detail.value = b"\xff\xff"
    hand.send((END, number, status))
    error = await failure(pending)
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert link.usable


async def test_messages_before_an_error_are_read_first(client: tuple[Hand, Link]) -> None:
    hand, link = client
    messages = link.caller.stream(STREAM, stream("x"), 20.0, {})
    reading = first_of(messages)
    number = (await hand.get()).call
    frame = (MESSAGE, number, delta(1).SerializeToString(), False)
    hand.send(frame, frame)
    await reading
    hand.send_raw(None)  # the stream breaks with one message unread
    await anext(messages)
    error = await failure(anext(messages))
    assert error.reason == Reason.ERROR_REASON_MUX_BROKEN


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_that_cannot_be_read(client: tuple[Hand, Link], streaming: bool) -> None:
    hand, link = client
    if streaming:
        messages = link.caller.stream(STREAM, stream("x"), 20.0, {})
        pending = first_of(messages)
    else:
        pending = call(link, unary("x"))
    number = (await hand.get()).call
    hand.send((MESSAGE, number, b"\xff\xff", False), (END, number, None))
    assert (await failure(pending)).reason == Reason.ERROR_REASON_CONTRACT_VIOLATED
    assert link.idle


@pytest.mark.parametrize(
    "broken",
    [
        b"garbage",
        None,
        MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, "hand: went away"),
        pack([(CANCEL, 1)]),
        pack([(MESSAGE, 77, b"", False)]),
    ],
)
async def test_a_broken_stream_ends_every_call_at_once(
    client: tuple[Hand, Link], broken: bytes | MeshError | None
) -> None:
    hand, link = client
    calls = [call(link, unary("x"), timeout=1000.0) for _ in range(5)]
    await hand.get()
    hand.send_raw(broken)
    errors = [await failure(one) for one in calls]
    for error in errors:
        assert error.reason == Reason.ERROR_REASON_MUX_BROKEN
        assert error.metadata == {"address": "hand"}
        assert error.message.startswith("hand: the connection broke with this call in flight: ")
    assert len(set(map(id, errors))) == len(errors)  # a traceback of its own each
    assert (await failure(call(link, unary("x")))).reason == Reason.ERROR_REASON_MUX_BROKEN


async def test_a_client_that_leaves_waits_for_its_calls(client: tuple[Hand, Link]) -> None:
    hand, link = client
    pending = call(link, unary("x"))
    number = (await hand.get()).call
    link.leave("bye")
    assert (await hand.get()).WhichOneof("kind") == "go_away"
    assert not hand.ended.is_set()
    answer = model_pb2.CreateResponseResponse(call_id="a").SerializeToString()
    hand.send((MESSAGE, number, answer, False), (END, number, None))
    assert (await pending).call_id == "a"
    await asyncio.wait_for(hand.ended.wait(), 10)


async def test_a_server_that_leaves_is_let_go(client: tuple[Hand, Link]) -> None:
    hand, link = client
    told = asyncio.Event()
    link.on_leaving = told.set
    hand.send((GO_AWAY, 0, "bye"))
    await asyncio.wait_for(told.wait(), 10)
    await asyncio.wait_for(hand.ended.wait(), 10)  # no call was in flight


async def test_a_client_whose_peer_does_not_read_waits_within_its_deadline(
    client: tuple[Hand, Link],
) -> None:
    hand, link = client
    hand.reads.clear()
    big = unary("x", request_id="x" * 200_000)
    calls = [call(link, big, timeout=1.0) for _ in range(200)]
    await until(lambda: link.sender.full)
    assert link.sender.queued_bytes < QUEUED_BYTES + 300_000
    for one in calls:
        assert (await failure(one)).reason == Reason.ERROR_REASON_DEADLINE_PASSED


async def test_either_end_may_call_the_other() -> None:
    hand, probe = Hand(), Probe()
    methods = {one.spec.full_name: one for one in Binding(MODEL, probe).methods.values()}
    async with end_of(hand, opener=False, methods=methods) as (link, _):
        pending = call(link, unary("x"))
        frame = await hand.get()
        assert frame.call == 2
        hand.send((MESSAGE, 2, b"", False), (END, 2, None))
        await pending
    async with end_of(hand := Hand(), opener=True, methods=methods) as (link, _):
        hand.send((BEGIN, 2, UNARY.full_name, 0, {}, unary("ok").SerializeToString(), False, 0))
        assert (await hand.get()).call == 2
