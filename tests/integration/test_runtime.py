"""The runtime over real sockets and processes: peers that die, and the life of a service."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving import registration
from tests.support.ports import free_port
from tests.unit.runtime.probe import (
    DISCOVERY,
    MODEL,
    Probe,
    instance_at,
    served,
    stream,
    unary,
    until,
)
from tests.unit.runtime.probe_service import ProbeService

REPOSITORY = Path(__file__).parents[2]
QUIET = ServeOptions(metrics_port=None, drain_s=5.0)
BOUND_S = 120.0  # what nothing comes near that works
LONG_S = 10 * BOUND_S  # a deadline that none waits for
DRAINS = "renew HEALTH_DRAINING"  # as the registry hears it
Status = health_pb2.HealthCheckResponse


@pytest.fixture(params=["auto", "plain"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    """How peers are called: over the mux, or by plain RPCs."""
    chosen: TransportName = request.param
    return chosen


@pytest.fixture
async def directory(transport: TransportName) -> AsyncIterator[PeerDirectory]:
    one = PeerDirectory(transport=transport)
    yield one
    await one.close()


@pytest.fixture
def broken(transport: TransportName) -> int:
    """The reason with which a call ends whose connection broke under it."""
    if transport == "auto":
        return errors_pb2.ERROR_REASON_MUX_BROKEN
    return errors_pb2.ERROR_REASON_PEER_UNAVAILABLE


async def failure(awaitable: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, BOUND_S)
    return caught.value


async def drain(frames: Any) -> None:
    async with aclosing(frames):
        async for _frame in frames:
            pass


# ---- peers that are away ------------------------------------------------------------------


async def test_a_peer_that_is_down_fails_fast(directory: PeerDirectory) -> None:
    address = f"127.0.0.1:{free_port()}"
    peer = directory.peer(instance_at(address))
    for call in (
        peer.CreateResponse(unary("ok"), timeout=LONG_S),
        drain(peer.StreamResponse(stream("ok"), timeout=LONG_S)),
    ):
        error = await failure(call)  # long before its deadline
        assert error.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert error.metadata["address"] == address
        assert error.message.startswith(address)


async def test_a_peer_that_never_answers_is_given_up(directory: PeerDirectory) -> None:
    with socket.socket() as mute:  # takes the connection and says nothing
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        peer = directory.peer(instance_at(f"127.0.0.1:{mute.getsockname()[1]}"))
        error = await failure(peer.CreateResponse(unary("ok"), timeout=0.5))
        assert error.reason == errors_pb2.ERROR_REASON_DEADLINE_PASSED
        error = await failure(peer.CreateResponse(unary("ok"), timeout=LONG_S))
        assert error.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE


async def test_a_peer_that_speaks_no_grpc(directory: PeerDirectory) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        peer = directory.peer(instance_at(f"127.0.0.1:{port}"))
        error = await failure(peer.CreateResponse(unary("ok"), timeout=BOUND_S))
        assert error.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE


async def test_a_peer_back_at_its_port_is_found_again(
    directory: PeerDirectory, broken: int
) -> None:
    port = free_port()
    async with served({MODEL: Probe()}, port) as address:
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=BOUND_S)
    error = await failure(peer.CreateResponse(unary("ok"), timeout=BOUND_S))
    # A call that leaves before word of the server's end is here was in flight when it ended.
    assert error.reason in (errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, broken)
    assert error.code is grpc.StatusCode.UNAVAILABLE
    answered = False
    async with served({MODEL: Probe()}, port), asyncio.timeout(BOUND_S):
        while not answered:
            with contextlib.suppress(MeshError):  # while the channel waits to connect anew
                await peer.CreateResponse(unary("ok"), timeout=5.0)
                answered = True
            await asyncio.sleep(0.05)


# ---- processes ----------------------------------------------------------------------------


@asynccontextmanager
async def probe_process(**options: Any) -> AsyncIterator[tuple[Process, str]]:
    """The probe in a process of its own, and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.unit.runtime.probe_service",
        json.dumps({"metrics_port": None, **options}),
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:
        yield process, await line_of(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
    return line.decode().strip()


async def test_a_peer_killed_in_mid_call(directory: PeerDirectory, broken: int) -> None:
    async with probe_process() as (process, address):
        peer = directory.peer(instance_at(address))
        frames = peer.StreamResponse(stream("hang"), timeout=LONG_S)
        assert (await anext(frames)).delta.output_index == 0
        call = asyncio.create_task(peer.CreateResponse(unary("hang"), timeout=LONG_S))
        await peer.CreateResponse(unary("ok"), timeout=BOUND_S)
        process.send_signal(signal.SIGKILL)
        for one in (call, drain(frames)):
            error = await failure(one)
            assert error.reason == broken
            assert error.code is grpc.StatusCode.UNAVAILABLE
            assert error.metadata["address"] == address


async def test_a_new_channel_knows_nothing_of_an_older_ones_failures() -> None:
    address = f"127.0.0.1:{free_port()}"
    older, newer = PeerDirectory(transport="plain"), PeerDirectory(transport="plain")
    try:
        for _ in range(3):  # each failure makes it wait longer before it tries again
            error = await failure(
                older.peer(instance_at(address)).CreateResponse(unary("ok"), timeout=5.0)
            )
            assert error.reason == errors_pb2.ERROR_REASON_PEER_UNAVAILABLE
        async with probe_process(port=int(address.rpartition(":")[2])) as (_, served):
            assert served == address
            peer = newer.peer(instance_at(address))
            assert (await peer.CreateResponse(unary("ok"), timeout=BOUND_S)).HasField("response")
    finally:
        await older.close()
        await newer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_a_running_call(
    directory: PeerDirectory, number: signal.Signals
) -> None:
    async with probe_process(drain_s=BOUND_S) as (process, address):
        peer = directory.peer(instance_at(address))
        call = asyncio.create_task(
            peer.CreateResponse(unary("slow", request_id="r-1"), timeout=BOUND_S)
        )
        assert await line_of(process) == "begun"
        process.send_signal(number)
        assert (await asyncio.wait_for(call, BOUND_S)).call_id == "r-1"
        assert await line_of(process) == "ended"
        assert await line_of(process) == "closed"
        assert await asyncio.wait_for(process.wait(), BOUND_S) == 0


async def test_a_drain_has_an_end(directory: PeerDirectory, broken: int) -> None:
    async with probe_process(drain_s=0.2) as (process, address):
        peer = directory.peer(instance_at(address))
        frames = peer.StreamResponse(stream("hang"), timeout=LONG_S)
        await anext(frames)
        process.send_signal(signal.SIGTERM)
        error = await failure(drain(frames))
        assert error.reason == broken
        assert await line_of(process) == "closed"
        assert await asyncio.wait_for(process.wait(), BOUND_S) == 0


async def test_a_signal_during_the_start_breaks_it_off() -> None:
    # The registry is away, so that the start would take 20 s.
    away = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-X",
        "importtime",  # says on stderr how far it is
        "-m",
        "tests.unit.runtime.probe_service",
        json.dumps({"metrics_port": None, "discovery_address": away}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            while b"tests.unit.runtime.probe\n" not in await process.stderr.readline():
                pass
        await asyncio.sleep(0.5)  # into the start
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
        # Nothing but the farewell: it never was ready.
        assert output.decode().splitlines() in (["closed"], [])
        assert process.returncode in (0, -signal.SIGTERM)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


# ---- up and down --------------------------------------------------------------------------


async def health_of(address: str, service: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=BOUND_S)
        status: int = reply.status
        return status


class RecordingRegistry(DiscoveryService):
    """A registry that records its calls, and the caller's health at that time.

    It answers a caller that drains once others have seen two statuses of it.
    """

    def __init__(self, events: list[str], seen: list[int]) -> None:
        super().__init__("registry-0")
        self._events = events
        self._seen = seen

    async def Register(
        self, request: discovery_pb2.RegisterRequest, context: CallContext
    ) -> discovery_pb2.RegisterResponse:
        status = await health_of(request.instance.address)
        self._events.append(f"register, health {Status.ServingStatus.Name(status)}")
        return await super().Register(request, context)

    async def Renew(
        self, request: discovery_pb2.RenewRequest, context: CallContext
    ) -> discovery_pb2.RenewResponse:
        if request.health == discovery_pb2.HEALTH_DRAINING:
            self._events.append(DRAINS)
            await until(lambda: len(self._seen) == 2, BOUND_S)
        elif DRAINS in self._events:  # earlier, the first snapshot may bring one
            self._events.append("renew as if it did not drain")
        return await super().Renew(request, context)

    async def Deregister(
        self, request: discovery_pb2.DeregisterRequest, context: CallContext
    ) -> discovery_pb2.DeregisterResponse:
        self._events.append("deregister")
        return await super().Deregister(request, context)


class RecordingProbe(Probe):
    """A probe that writes down when a call ends in the service; its caller sees it later."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        try:
            return await super().CreateResponse(request, context)
        finally:
            self._events.append("last call ended")


async def watch_health(address: str, statuses: list[int]) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            async for reply in stub.Watch(health_pb2.HealthCheckRequest(service=MODEL)):
                statuses.append(reply.status)


async def test_the_order_of_up_and_down(
    directory: PeerDirectory, broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "LEASE_S", 300)  # none is renewed meanwhile
    for name in ("_CALL_TIMEOUT_S", "_STOP_S"):  # and none given up
        monkeypatch.setattr(registration, name, BOUND_S)
    service = ProbeService()
    service.probe = RecordingProbe(service.events)
    statuses: list[int] = []
    registry = RecordingRegistry(service.events, statuses)
    async with serving(registry, QUIET) as found:
        options = ServeOptions(
            metrics_port=None, drain_s=1.0, discovery_address=found.instance.address
        )
        async with serving(service, options) as up:
            address = up.instance.address
            service.events.append("ready")
            for name in ("", MODEL):
                assert await health_of(address, name) == Status.SERVING
            assert (await up.directory.pick(MODEL, "policy", timeout=BOUND_S)).address == address
            watching = asyncio.create_task(watch_health(address, statuses))
            call = asyncio.create_task(
                directory.peer(up.instance).CreateResponse(unary("hang"), timeout=LONG_S)
            )
            await asyncio.wait_for(service.probe.started.wait(), BOUND_S)
            await until(lambda: statuses)
        await asyncio.wait_for(asyncio.gather(watching, call, return_exceptions=True), BOUND_S)
        assert (await registry.ListInstances(discovery_pb2.ListInstancesRequest(), _CONTEXT)) == (
            discovery_pb2.ListInstancesResponse(version=3)
        )
    assert statuses == [Status.SERVING, Status.NOT_SERVING]
    assert service.events == [
        "open",
        "register, health NOT_SERVING",
        "ready",
        DRAINS,
        "last call ended",
        "deregister",
        "close",
    ]
    error = call.exception()
    assert isinstance(error, MeshError)
    assert error.reason == broken


_CONTEXT = CallContext("test")


async def test_metrics_and_reflection() -> None:
    async with serving(ProbeService(), ServeOptions(drain_s=1.0)) as up:
        address = up.instance.address
        directory = PeerDirectory()
        await directory.peer(up.instance).CreateResponse(unary("ok"), timeout=BOUND_S)
        await directory.close()
        url = f"http://{up.instance.metrics_address}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=BOUND_S).read())
        assert f'gymmesh_rpcs_total{{code="OK",method="{MODEL}/CreateResponse"}}' in page.decode()
        async with grpc.aio.insecure_channel(address) as channel:
            blocking: Any = channel  # what the stub's types know, wrongly, as the only kind
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(blocking)
            asked = reflection_pb2.ServerReflectionRequest(list_services="")
            async for reply in stub.ServerReflectionInfo(iter([asked]), timeout=BOUND_S):
                names = {one.name for one in reply.list_services_response.service}
        assert {MODEL, "grpc.health.v1.Health"} <= names


async def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        service = ProbeService()
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}: the port is"):
            async with serving(service, ServeOptions(port=port, metrics_port=None)):
                pytest.fail("served on a port that was taken")
        assert service.events == ["open", "close"]
        with pytest.raises(OSError, match=rf"cannot serve metrics on 127\.0\.0\.1:{port}: Addr"):
            async with serving(ProbeService(), ServeOptions(metrics_port=port)):
                pytest.fail("served metrics on a port that was taken")


async def test_two_services_do_not_share_a_port() -> None:
    async with serving(ProbeService(), QUIET) as up:
        port = int(up.instance.address.rpartition(":")[2])
        with pytest.raises(OSError, match="cannot listen"):
            async with serving(ProbeService("b"), ServeOptions(port=port, metrics_port=None)):
                pytest.fail("served on a port that was taken")


async def test_a_service_that_cannot_open_leaves_nothing_behind() -> None:
    before = {task for task in asyncio.all_tasks() if not task.done()}
    files = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    reason = MeshError(errors_pb2.ERROR_REASON_MODEL_UNREACHABLE, "no model here")
    async with serving(DiscoveryService("registry-0"), QUIET) as registry:
        address = registry.instance.address
        service = ProbeService(open_fails=reason)
        with pytest.raises(MeshError, match="no model here"):
            async with serving(service, ServeOptions(discovery_address=address)):
                pytest.fail("served without having opened")
        assert service.events == ["open", "close"]
    await until(lambda: not ({task for task in asyncio.all_tasks() if not task.done()} - before))
    if sys.platform == "linux":  # gRPC closes its sockets in the background
        await until(lambda: len(os.listdir("/proc/self/fd")) <= files + 4)


def _knows(directory: PeerDirectory, count: int) -> bool:
    return len(directory.instances()) == count


async def test_the_directory_of_a_service_knows_the_others() -> None:
    async with serving(DiscoveryService("registry-0"), QUIET) as registry:
        options = ServeOptions(
            metrics_port=None, drain_s=1.0, discovery_address=registry.instance.address
        )
        async with serving(ProbeService("a"), options) as a:
            async with serving(ProbeService("b"), options) as b:
                for one in (a, b):
                    await until(partial(_knows, one.directory, 2))
                    picked = await one.directory.pick(MODEL, "policy")
                    await one.directory.peer(picked).CreateResponse(unary("ok"), timeout=BOUND_S)
            await until(lambda: len(a.directory.instances()) == 1)
            assert (await a.directory.pick(MODEL, "policy")).id == "a"
        assert registry.instance.service == DISCOVERY
