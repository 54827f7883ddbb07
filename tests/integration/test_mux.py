"""The mux over real sockets and processes: sharing, falling back, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, from_status
from gymmesh_runtime.peers import PeerDirectory, Transport
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire import channels
from gymmesh_runtime.wire.batch import MIB
from gymmesh_runtime.wire.channels import Connection, Line
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.frames import (
    BEGIN,
    CHUNK,
    END,
    EXCHANGE,
    MAX_MESSAGE,
    MESSAGE,
    OFFERED,
    Frame,
    pack,
    unpack,
)
from gymmesh_runtime.wire.mux.servicer import MuxServicer
from gymmesh_runtime.wire.mux.table import TableLimits
from gymmesh_runtime.wire.mux.trunk import Trunk
from gymmesh_runtime.wire.options import channel_options, server_options
from gymmesh_runtime.wire.server import MeshServer
from tests.unit.runtime.probe import DISCOVERY, MODEL, Probe, instance_at, stream, unary, until
from tests.unit.runtime.probe_service import ProbeService

pytestmark = pytest.mark.timeout(90)

REPOSITORY = Path(__file__).parents[2]
Reason = errors_pb2.ErrorReason


@pytest.fixture
async def directory() -> AsyncIterator[PeerDirectory]:
    one = PeerDirectory()
    yield one
    await one.close()


async def failure(awaitable: Any, timeout: float = 30.0) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, timeout)
    return caught.value


class Asked(grpc.GenericRpcHandler):
    """Writes down what is asked for, and serves none of it."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def service(self, handler_call_details: Any) -> None:
        self.methods.append(handler_call_details.method)


class Server:
    """A server whose streams can be counted. ``mux`` False: it does not offer the mux."""

    def __init__(
        self,
        servicers: Mapping[str, object],
        *,
        mux: bool = True,
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
    ) -> None:
        bindings = [Binding(name, one) for name, one in servicers.items()]
        self.asked = Asked()
        self.mux = MuxServicer(bindings, limits, budget)
        self._plain = MeshServer(bindings, mux=False)
        server = self._plain._server  # what it serves is watched here, nothing else
        if mux:
            server.add_generic_rpc_handlers((self.mux.handler(),))
        server.add_generic_rpc_handlers((self.asked,))

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[str]:
        bound = await self._plain.start("127.0.0.1", port)
        try:
            yield f"127.0.0.1:{bound}"
        finally:
            await self._plain.stop(0)


# ---- sharing ------------------------------------------------------------------------------


async def test_all_who_call_one_address_share_one_stream(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe(), DISCOVERY: object()})
    async with server.running() as address:
        model = directory.peer(instance_at(address))
        other = directory.peer(instance_at(address, instance_id="b"))
        discovery = directory.peer(instance_at(address), DISCOVERY)
        calls = [model.CreateResponse(unary("ok"), timeout=20.0) for _ in range(200)]
        calls += [other.CreateResponse(unary("ok"), timeout=20.0) for _ in range(200)]
        await asyncio.gather(*calls)  # the first of which open it
        async for _message in model.StreamResponse(stream("ok"), timeout=20.0):
            pass
        request = discovery_pb2.ListInstancesRequest()
        error = await failure(discovery.ListInstances(request, timeout=20.0))
        assert error.reason == Reason.ERROR_REASON_NOT_OFFERED
        assert server.mux.streams == 1


class Crowd:
    """Holds calls until there are enough of them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._all = asyncio.Event()
        self.waiting = 0

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        self.waiting += 1
        if self.waiting == self._count:
            self._all.set()
        await self._all.wait()
        return model_pb2.CreateResponseResponse(call_id=request.request_id)


async def test_ten_thousand_calls_in_flight_on_one_stream(directory: PeerDirectory) -> None:
    crowd = Crowd(10_000)
    server = Server({MODEL: crowd})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        calls = [
            peer.CreateResponse(unary("ok", request_id=f"r-{index}"), timeout=80.0)
            for index in range(10_000)
        ]
        replies = await asyncio.gather(*calls)  # ends only if all were in flight at once
        assert [reply.call_id for reply in replies] == [f"r-{index}" for index in range(10_000)]
        assert server.mux.streams == 1


async def test_small_calls_overtake_a_large_one(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=20.0)
        done: list[str] = []

        async def call(name: str, size: int) -> None:
            reply = await peer.CreateResponse(unary("ok", request_id="x" * size), timeout=60.0)
            assert len(reply.call_id) == size
            done.append(name)

        large = asyncio.create_task(call("large", 40 * MIB))
        await asyncio.sleep(0)  # it is the first to send
        for _ in range(20):
            await call("small", 10)
        await large
        assert done == ["small"] * 20 + ["large"]


# ---- falling back -------------------------------------------------------------------------


async def test_a_peer_without_the_mux_is_asked_once(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()}, mux=False)
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        calls = (peer.CreateResponse(unary("ok"), timeout=20.0) for _ in range(50))
        await asyncio.gather(*calls)
        seen = [m.delta.output_index async for m in peer.StreamResponse(stream("ok"), timeout=20.0)]
        assert seen == [0, 1, 2]
        assert server.asked.methods == [f"/{EXCHANGE}"]


async def test_who_comes_back_with_the_mux_is_found_to_have_it(directory: PeerDirectory) -> None:
    without, with_mux = Server({MODEL: Probe()}, mux=False), Server({MODEL: Probe()})
    async with without.running() as address:
        instance = instance_at(address)
        directory.upsert(instance)
        await directory.peer(instance).CreateResponse(unary("ok"), timeout=20.0)
    directory.remove(instance.id)
    async with with_mux.running(int(address.rpartition(":")[2])):
        directory.upsert(instance)
        peer = directory.peer(instance)
        async with asyncio.timeout(20):
            while not with_mux.mux.streams:
                with suppress(MeshError):  # while the channel connects anew
                    await peer.CreateResponse(unary("ok"), timeout=5.0)
                await asyncio.sleep(0.05)


class Stranger:
    """A mux as one of another language, which may not say so in its first metadata."""

    def __init__(self, greeting: tuple[tuple[str, str], ...] | None) -> None:
        self._greeting = greeting

    async def exchange(self, _requests: Any, rpc: Any) -> None:
        if self._greeting is not None:
            await rpc.send_initial_metadata(self._greeting)
        while (data := await rpc.read()) is not grpc.aio.EOF:
            batch = unpack(data)
            for frame in batch.frames:
                if frame.WhichOneof("kind") == "begin":
                    request = model_pb2.CreateResponseRequest.FromString(frame.begin.payload)
                    answer = model_pb2.CreateResponseResponse(call_id=request.request_id)
                    await rpc.write(
                        pack([(MESSAGE, frame.call, answer.SerializeToString(), False)])
                    )
                    await rpc.write(pack([(END, frame.call, None)]))


@pytest.mark.parametrize("greeting", [None, (), ((OFFERED, "1"),)])
async def test_a_mux_that_somebody_else_wrote(
    directory: PeerDirectory, greeting: tuple[tuple[str, str], ...] | None
) -> None:
    server = grpc.aio.server(options=server_options())
    service, _, method = EXCHANGE.partition("/")
    stranger: Any = grpc.stream_stream_rpc_method_handler(Stranger(greeting).exchange)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: stranger}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        peer = directory.peer(instance_at(f"127.0.0.1:{port}"))
        for name in "ab":
            reply = await peer.CreateResponse(unary("ok", request_id=name), timeout=20.0)
            assert reply.call_id == name
        calls = [peer.CreateResponse(unary("ok", request_id=n), timeout=20.0) for n in "abcdefgh"]
        assert "".join(reply.call_id for reply in await asyncio.gather(*calls)) == "abcdefgh"
    finally:
        await server.stop(0)


async def test_attempts_to_connect_are_shared_and_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymmesh_runtime.wire.mux.trunk._FIRST_PAUSE_S", 0.5)
    with socket.socket() as nobody:  # bound, but it does not listen
        nobody.bind(("127.0.0.1", 0))
        line = CountingLine(f"127.0.0.1:{nobody.getsockname()[1]}")
        trunk = Trunk(line)
        for attempts in (1, 2):
            while line.attempts < attempts:  # until the pause after the last one is over
                errors = [failure(trunk.open(20.0, "s/M")) for _ in range(50)]
                for error in await asyncio.gather(*errors):
                    assert error.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE
                    assert error.message.startswith(line.address)
                await asyncio.sleep(0.02)
            assert line.attempts == attempts
            await failure(trunk.open(20.0, "s/M"))
            assert line.attempts == attempts  # it failed at once, without another
        await trunk.close()
        await line.close(None)


class CountingLine(Line):
    """Counts the streams that were tried."""

    attempts = 0

    def enter(self) -> Connection:
        self.attempts += 1
        return super().enter()


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_a_service_offers_the_mux_unless_told_otherwise(
    directory: PeerDirectory, transport: Transport
) -> None:
    def frames() -> float:
        values = [
            metrics.REGISTRY.get_sample_value("gymmesh_mux_frames_total", {"side": side}) or 0.0
            for side in ("client", "server")
        ]
        return sum(values)

    before = frames()
    options = ServeOptions(metrics_port=None, drain_s=1.0, transport=transport)
    async with serving(ProbeService(), options) as up:
        for _ in range(10):
            await directory.peer(up.instance).CreateResponse(unary("ok"), timeout=20.0)
        assert up.directory.transport == transport
    # A question and an answer each, and at the end a farewell.
    assert (frames() - before >= 20) == (transport == "auto")


# ---- what goes wrong ----------------------------------------------------------------------


@asynccontextmanager
async def exchange(address: str) -> AsyncIterator[Any]:
    """An Exchange stream on which a test writes and reads the bytes."""
    async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
        call: Any = channel.stream_stream(f"/{EXCHANGE}")()
        await call.wait_for_connection()
        try:
            yield call
        finally:
            call.cancel()


async def test_many_peers_that_end_no_message_take_no_more_than_the_budget(
    directory: PeerDirectory,
) -> None:
    budget = AssemblyBudget(16 * MIB)
    server = Server({MODEL: Probe()}, budget=budget)
    chunk = b"x" * (MIB // 2)
    async with server.running() as address, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(exchange(address)) for _ in range(40)]
        reasons = []
        for call in calls:
            begins: list[Frame] = [(*BEGUN[:5], chunk, True, 0)]
            # So much that no connection may hold it: each gets a refusal, and lives on.
            chunks: list[Frame] = [(CHUNK, 1, chunk, False)] * 17
            await call.write(pack([*begins, *chunks]))
            (frame,) = unpack(await call.read()).frames
            reasons.append(from_status(frame.end.status).reason)
            assert budget.used <= budget.total
        assert set(reasons) == {Reason.ERROR_REASON_QUEUE_FULL}
        # What was refused is held no more, so each may begin another one: until all is taken.
        for call in calls:
            await call.write(pack([(BEGIN, 3, *BEGUN[2:5], chunk, True, 0)]))
        await until(lambda: budget.used >= 7 * MIB)
        assert budget.used <= budget.total
        # Others are served, with requests of any size that there is room for.
        peer = directory.peer(instance_at(address))
        for size in (10, 400_000):
            request = unary("ok", request_id="y" * size)
            assert len((await peer.CreateResponse(request, timeout=20.0)).call_id) == size
    await until(lambda: budget.used == 0)


async def test_a_request_whose_end_does_not_come_is_given_up() -> None:
    budget = AssemblyBudget()
    server = Server({MODEL: Probe()}, limits=TableLimits(assembly_s=0.05), budget=budget)
    async with server.running() as address, exchange(address) as call:
        await call.write(pack([(*BEGUN[:5], b"x" * 1000, True, 0)]))
        (frame,) = unpack(await call.read()).frames
        error = from_status(frame.end.status)
        assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        assert error.message == "the request did not come within 0.05 s"
        assert budget.used == 0


async def test_chunks_for_a_method_that_is_not_there_are_not_kept() -> None:
    budget = AssemblyBudget()
    server = Server({MODEL: Probe()}, budget=budget)
    async with server.running() as address, exchange(address) as call:
        await call.write(pack([(BEGIN, 1, "s/M", 0, {}, b"x" * 1000, True, 0)]))
        (frame,) = unpack(await call.read()).frames
        assert from_status(frame.end.status).reason == Reason.ERROR_REASON_NOT_OFFERED
        assert budget.used == 0


async def _read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


BEGUN: Frame = (BEGIN, 1, f"{MODEL}/CreateResponse", 20_000, {}, unary("hang").SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        pack([(MESSAGE, 1, b"", False)]),
        pack([(*BEGUN[:5], b"x" * (MIB + 1), False, 0)]),
        pack([(*BEGUN, False, 0), (*BEGUN, False, 0)]),
    ],
)
async def test_garbage_ends_its_own_stream_only(directory: PeerDirectory, data: bytes) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=20.0)
        async with exchange(address) as call:
            await call.write(data)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(_read_all(call), 20)
            trailers: Any = caught.value.trailing_metadata()
            assert b"MUX_BROKEN" in dict(trailers)[STATUS_DETAILS_KEY]
        await peer.CreateResponse(unary("ok"), timeout=20.0)
        await until(lambda: server.mux.streams == 1)


async def test_a_client_that_goes_away_has_its_calls_stopped() -> None:
    probe = Probe()
    server = Server({MODEL: probe})
    async with server.running() as address:
        async with exchange(address) as call:
            await call.write(pack([(*BEGUN, False, 0)]))
            await asyncio.wait_for(probe.started.wait(), 20)
        await asyncio.wait_for(probe.cancelled.wait(), 20)
        await until(lambda: server.mux.streams == 0)


async def test_a_message_over_the_limit_fails_its_own_call_only(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        error = await failure(
            peer.CreateResponse(unary("ok", request_id="x" * (MAX_MESSAGE + 1)), timeout=20.0)
        )
        assert error.reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE
        await peer.CreateResponse(unary("ok"), timeout=20.0)


@asynccontextmanager
async def probe_process() -> AsyncIterator[tuple[Process, str]]:
    """The probe in a process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.runtime.probe_service",
        json.dumps({"metrics_port": None}),
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        yield process, line.decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.communicate()


async def test_a_peer_that_stands_still_is_bounded_by_deadlines(directory: PeerDirectory) -> None:
    async with probe_process() as (process, address):
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=20.0)
        process.send_signal(signal.SIGSTOP)
        calls = [peer.CreateResponse(unary("ok"), timeout=0.5) for _ in range(100)]
        for error in await asyncio.gather(*map(failure, calls)):
            assert error.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        process.send_signal(signal.SIGCONT)
        reply = await peer.CreateResponse(unary("ok", request_id="again"), timeout=20.0)
        assert reply.call_id == "again"


async def test_a_peer_that_stands_still_is_noticed_by_keepalive(
    directory: PeerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    ours = channel_options()
    assert {name for name, _ in ours} >= set(pings)
    impatient = [(name, 1000 if name in pings else value) for name, value in ours]
    monkeypatch.setattr(channels, "channel_options", lambda _: impatient)
    async with probe_process() as (process, address):
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=20.0)
        process.send_signal(signal.SIGSTOP)
        error = await failure(peer.CreateResponse(unary("ok"), timeout=80.0), 60)
        assert error.reason == Reason.ERROR_REASON_MUX_BROKEN
        assert error.metadata == {"address": address}


async def test_a_reader_that_does_not_read_costs_little_memory() -> None:
    async with probe_process() as (process, address), exchange(address) as call:
        before = resident(process.pid)
        method = f"{MODEL}/StreamResponse"
        flood = stream("flood").SerializeToString()
        begins: list[Frame] = [
            (BEGIN, number, method, 60_000, {}, flood, False, 2**31 - 1)
            for number in range(1, 101, 2)
        ]
        await call.write(pack(begins))
        await asyncio.sleep(3.0)  # as much as fifty endless streams send meanwhile
        assert resident(process.pid) - before < 64 * MIB
        async with grpc.aio.insecure_channel(address) as other:  # and it serves others
            ask: Any = other.unary_unary(f"/{MODEL}/CreateResponse")
            await ask(unary("ok").SerializeToString(), timeout=20)


def resident(pid: int) -> int:
    """The memory of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    "test",
    [
        test_all_who_call_one_address_share_one_stream,
        test_ten_thousand_calls_in_flight_on_one_stream,
        test_small_calls_overtake_a_large_one,
        test_a_peer_without_the_mux_is_asked_once,
        test_a_peer_that_stands_still_is_bounded_by_deadlines,
    ],
)
def test_on_uvloop(test: Any) -> None:
    """The event loop of services."""

    async def run() -> None:
        one = PeerDirectory()
        try:
            await test(one)
        finally:
            await one.close()

    uvloop.run(run())
