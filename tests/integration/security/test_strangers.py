"""Strangers that send much, or nothing, or come in numbers: what they cost a server is bounded."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.wire import options
from tests.unit.runtime.probe import MODEL, unary

TOKEN = "a-token-of-the-collector"
BIG = 40 << 20
EACH = 10
UNARY = [f"{MODEL}/CreateResponse", f"{MODEL}/SetWeightsVersion", "grpc.health.v1.Health/Check"]
STREAMS = [f"{MODEL}/StreamResponse", "grpc.health.v1.Health/Watch"]
BOTH = [
    "gymmesh.mux.v1.MuxService/Exchange",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
]


class Server:
    """The server's process, seen from outside."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    def peak(self) -> int:
        """Bytes of memory that the process had at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) << 10

    def channel(self) -> grpc.aio.Channel:
        most = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=most)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.security.strangers_server",
        sha256(TOKEN.encode()).hexdigest(), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    yield Server(process, int(await process.stdout.readline()))
    process.kill()
    await process.wait()


async def known(server: Server) -> Any:
    """A call of the collector's."""
    async with server.channel() as channel:
        call = channel.unary_unary(
            f"/{MODEL}/CreateResponse",
            request_serializer=model_pb2.CreateResponseRequest.SerializeToString,
            response_deserializer=model_pb2.CreateResponseResponse.FromString,
        )
        metadata = [("authorization", f"Bearer {TOKEN}")]
        return await call(unary("ok", request_id="r"), metadata=metadata, timeout=120)


async def intrude(server: Server, method: str, data: bytes) -> grpc.StatusCode:
    async with server.channel() as opened:
        channel: Any = opened
        try:
            if method in UNARY:
                await channel.unary_unary(f"/{method}")(data, timeout=120)
            elif method in STREAMS:
                async for _ in channel.unary_stream(f"/{method}")(data, timeout=120):
                    break
            else:
                stream: Any = channel.stream_stream(f"/{method}")(iter([data]), timeout=120)
                async for _ in stream:
                    break
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("method", UNARY + STREAMS + BOTH)
async def test_what_strangers_send_is_not_taken_in(server: Server, method: str) -> None:
    await known(server)
    before, data = server.peak(), b"\xff" * BIG
    await asyncio.gather(*(intrude(server, method, data) for _ in range(EACH)))
    assert (await known(server)).call_id == "r"
    # Two may be read at a time, of calls that are open to all; and each has copies.
    most = 16 << 20 if method.startswith(MODEL) else 6 * BIG + (32 << 20)
    assert server.peak() - before < most


async def test_the_status_of_a_refused_stranger_arrives(server: Server) -> None:
    for method in UNARY[:2] + STREAMS[:1]:
        code = await intrude(server, method, b"\xff" * (1 << 20))
        assert code is grpc.StatusCode.UNAUTHENTICATED, method


async def test_health_answers_strangers(server: Server) -> None:
    async with server.channel() as channel:
        call = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        said = await asyncio.gather(
            *(call(health_pb2.HealthCheckRequest(service=MODEL), timeout=120) for _ in range(50))
        )
    assert {one.status for one in said} == {health_pb2.HealthCheckResponse.SERVING}


async def test_a_call_without_a_request_is_refused(server: Server) -> None:
    async with server.channel() as channel:
        call: Any = channel.stream_unary(f"/{MODEL}/CreateResponse")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(iter(()), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=120)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_connections_have_a_number_and_half_open_ones_a_time() -> None:
    settings = [
        (key, {"grpc.max_allowed_incoming_connections": 5, "grpc.server_handshake_timeout_ms": 500,
               "grpc.max_connection_idle_ms": 500}.get(key, value))
        for key, value in options.server_options()
    ]  # fmt: skip
    assert len({key for key, _ in settings}) == len(settings)
    server = grpc.aio.server(options=settings)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        # All of them are closed by the server: most at once, the others for saying nothing.
        async with asyncio.timeout(120):
            for reader, _ in held:
                while await reader.read(1000):
                    pass
        for _, writer in held:
            writer.close()
    finally:
        await server.stop(0)
