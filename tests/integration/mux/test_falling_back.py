"""Peers that lack the mux, or have another one."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire.channels import OpenChannel, PeerChannel
from gymmesh_runtime.wire.mux.connection import MuxConnection
from gymmesh_runtime.wire.mux.frames import (
    EXCHANGE,
    OFFERED,
    End,
    Message,
    pack,
    unpack,
)
from gymmesh_runtime.wire.options import server_options
from tests.integration.mux.servers import Reason, Server, failure
from tests.support.ports import free_port
from tests.unit.runtime.probe import MODEL, Probe, instance_at, stream, unary
from tests.unit.runtime.probe_service import ProbeService


async def test_a_peer_without_the_mux_is_asked_once(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()}, mux=False)
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        calls = (peer.CreateResponse(unary("ok"), timeout=60.0) for _ in range(50))
        await asyncio.gather(*calls)
        seen = [m.delta.output_index async for m in peer.StreamResponse(stream("ok"), timeout=60.0)]
        assert seen == [0, 1, 2]
        assert server.asked.methods == [f"/{EXCHANGE}"]


async def test_who_comes_back_with_the_mux_is_found_to_have_it(directory: PeerDirectory) -> None:
    without, with_mux = Server({MODEL: Probe()}, mux=False), Server({MODEL: Probe()})
    port = free_port()
    async with without.running(port) as address:
        instance = instance_at(address)
        directory.upsert(instance)
        await directory.peer(instance).CreateResponse(unary("ok"), timeout=60.0)
    directory.remove(instance.id)
    async with with_mux.running(port):
        directory.upsert(instance)
        peer = directory.peer(instance)
        async with asyncio.timeout(60):
            while not with_mux.mux._exchanges:
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
                    await rpc.write(pack([Message(frame.call, answer.SerializeToString(), False)]))
                    await rpc.write(pack([End(frame.call, None)]))


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
            reply = await peer.CreateResponse(unary("ok", request_id=name), timeout=60.0)
            assert reply.call_id == name
        calls = [peer.CreateResponse(unary("ok", request_id=n), timeout=60.0) for n in "abcdefgh"]
        assert "".join(reply.call_id for reply in await asyncio.gather(*calls)) == "abcdefgh"
    finally:
        await server.stop(0)


async def test_a_refusal_that_comes_late(
    directory: PeerDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_runtime.wire.mux.connection._SILENCE_S", 0.05)
    arrived, refuses = asyncio.Event(), asyncio.Event()

    async def late(requests: Any, rpc: Any) -> None:
        await anext(aiter(requests))
        arrived.set()
        await refuses.wait()
        await rpc.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown service {EXCHANGE}")

    server = Server({MODEL: Probe()}, mux=False)
    service, _, method = EXCHANGE.partition("/")
    handlers: Any = {method: grpc.stream_stream_rpc_method_handler(late)}
    server._plain._server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, handlers),)
    )
    async with server.running() as address:
        peer = directory.peer(instance_at(address))

        async def stream_once() -> list[int]:
            answers = peer.StreamResponse(stream("ok"), timeout=60.0)
            return [answer.delta.output_index async for answer in answers]

        streamed = asyncio.create_task(stream_once())
        calls = [
            asyncio.ensure_future(peer.CreateResponse(unary("ok"), timeout=60.0)) for _ in "ab"
        ]
        async with asyncio.timeout(60.0):
            await arrived.wait()  # what the calls sent is on the stream
        assert not streamed.done()
        refuses.set()
        await asyncio.gather(*calls)
        assert await streamed == [0, 1, 2]


async def test_attempts_to_connect_are_shared_and_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("gymmesh_runtime.wire.mux.connection.time", clock)
    with socket.socket() as nobody:  # bound, but it does not listen
        nobody.bind(("127.0.0.1", 0))
        channel = CountingChannel(f"127.0.0.1:{nobody.getsockname()[1]}")
        connection = MuxConnection(channel)
        for attempts in (1, 2):
            errors = [failure(connection.open(60.0, "s/M")) for _ in range(50)]
            for error in await asyncio.gather(*errors):
                assert error.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE
                assert error.message.startswith(channel.address)
            assert channel.attempts == attempts
            await failure(connection.open(60.0, "s/M"))
            assert channel.attempts == attempts  # it failed at once, without another
            now += 5.0  # the pause after the last one is over
        await connection.close()
        await channel.close(None)


class CountingChannel(PeerChannel):
    """Counts the streams that were tried."""

    attempts = 0

    def enter(self) -> OpenChannel:
        self.attempts += 1
        return super().enter()


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_a_service_offers_the_mux_unless_told_otherwise(
    directory: PeerDirectory, transport: TransportName
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
            await directory.peer(up.instance).CreateResponse(unary("ok"), timeout=60.0)
        assert up.directory.transport == transport
    # A question and an answer each, and at the end a farewell.
    assert (frames() - before >= 20) == (transport == "auto")
