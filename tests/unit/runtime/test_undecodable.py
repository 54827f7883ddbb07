"""Bytes that are no message: the caller's fault in a request, the peer's in an answer."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.wire.library_log import quiet
from gymmesh_runtime.wire.listener import Listener
from gymmesh_runtime.wire.mux.frames import EXCHANGE, OFFERED, End, Message, pack, unpack
from tests.fuzz import http2
from tests.support.logged import without_other_loops
from tests.unit.runtime.probe import MODEL, Probe, instance_at, served, stream, unary

ROOT: Final = Path(__file__).resolve().parents[3]


SERVICES = [
    "gymmesh.agent.v1.AgentService",
    "gymmesh.discovery.v1.DiscoveryService",
    "gymmesh.model.v1.ModelService",
    "gymmesh.resource.v1.ResourceService",
    "gymmesh.run.v1.RunService",
    "gymmesh.verify.v1.VerifyService",
]
METHODS = [
    (service, name, spec.client_streaming, spec.server_streaming)
    for service in SERVICES
    for name, spec in methods_of(service).items()
]
OTHERS = [
    ("grpc.health.v1.Health", "Check", False, False),
    ("grpc.health.v1.Health", "Watch", False, True),
    ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", True, True),
]
#: A length without its bytes, an unfinished number, a wire type that there is not, a group
#: without an end.
GARBAGE = [b"\x0a\xff", b"\x08\xff", b"\x0f\x0f\x0f", b"\x0b\x0b\x0b"]
#: Text that is not UTF-8, in the first field of most messages.
NOT_TEXT = b"\x0a\x02\xff\xfe"


class Collecting:
    """Reads what it is sent, and answers nothing."""

    async def Collect(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for _request in requests:
            pass
        return
        yield  # makes this an async generator


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What was logged; nothing is to be a warning, or have a traceback."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    for record in without_other_loops(caplog.get_records("call")):
        assert record.exc_info is None, record.getMessage()
        assert record.levelno < logging.WARNING, record.getMessage()


@asynccontextmanager
async def channel_to(services: list[str]) -> AsyncIterator[Any]:
    async with (
        served({service: Collecting() for service in services}) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield channel


async def refusal_of(channel: Any, path: str, up: bool, down: bool, data: bytes) -> Any:
    """How a plain call of a method ends that sends these bytes."""

    async def end() -> None:
        if not up and not down:
            await channel.unary_unary(path)(data, timeout=20)
            return
        make = channel.stream_stream if up else channel.unary_stream
        async for _response in make(path)(iter([data]) if up else data, timeout=20):
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await end()
    return caught.value


def info_in(error: Any) -> error_details_pb2.ErrorInfo:
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())[STATUS_DETAILS_KEY])
    assert status.code == error.code().value[0]
    (detail,) = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    return info


@pytest.mark.parametrize(
    ("service", "name", "up", "down"), METHODS + OTHERS, ids=lambda value: str(value)
)
async def test_a_request_that_cannot_be_decoded_is_the_callers_fault(
    service: str, name: str, up: bool, down: bool, logged: pytest.LogCaptureFixture
) -> None:
    async with channel_to(SERVICES) as channel:
        for data in GARBAGE:
            error = await refusal_of(channel, f"/{service}/{name}", up, down, data)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
            info = info_in(error)
            assert (info.domain, info.reason) == ("gymmesh", "FIELD_INVALID")
            assert dict(info.metadata) == {"field": "", "method": f"{service}/{name}"}


async def test_text_that_is_not_utf8_and_nesting_without_end(
    logged: pytest.LogCaptureFixture,
) -> None:
    nested = b""
    for _ in range(200):  # items in items, further than a decoder follows
        nested = b"\x0a" + _varint(len(nested)) + nested
    async with channel_to(SERVICES) as channel:
        path = "/gymmesh.discovery.v1.DiscoveryService/ListInstances"
        error = await refusal_of(channel, path, False, False, NOT_TEXT)
        assert info_in(error).reason == "FIELD_INVALID"
        path = "/gymmesh.model.v1.ModelService/CreateResponse"
        for data in (nested, b"\x0b" * 200 + b"\x0c" * 200):
            error = await refusal_of(channel, path, False, False, data)
            assert error.code() is not grpc.StatusCode.UNKNOWN


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


async def test_calls_that_cannot_be_decoded_are_counted() -> None:
    labels = {"method": f"{MODEL}/CreateResponse", "code": "INVALID_ARGUMENT"}

    def count() -> float:
        return metrics.REGISTRY.get_sample_value("gymmesh_rpcs_total", labels) or 0.0

    before = count()
    async with channel_to(SERVICES) as channel:
        await refusal_of(channel, f"/{MODEL}/CreateResponse", False, False, GARBAGE[0])
        assert count() == before + 1


@pytest.mark.parametrize("name", ["CreateResponse", "StreamResponse"])
async def test_a_frame_that_cannot_be_decoded_fails_its_own_call(
    name: str, logged: pytest.LogCaptureFixture
) -> None:
    batch = mux_pb2.ExchangeRequest()
    for number, method, payload in (
        (1, name, GARBAGE[0]),
        (3, name, NOT_TEXT),
        (5, "CreateResponse", unary("ok", request_id="r-5").SerializeToString()),
    ):
        begin = mux_pb2.Begin(method=f"{MODEL}/{method}", timeout_ms=20_000, payload=payload)
        batch.frames.add(call=number, begin=begin)
    ends: dict[int, Any] = {}
    messages: dict[int, bytes] = {}
    async with served({MODEL: Probe()}) as address, grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(f"/{EXCHANGE}")()
        await call.write(batch.SerializeToString())
        while len(ends) < 3:
            for frame in unpack(await call.read()).frames:
                if frame.WhichOneof("kind") == "message":
                    messages[frame.call] = frame.message.payload
                else:
                    ends[frame.call] = frame.end.status
        call.cancel()
    assert list(messages) == [5]
    for number in (1, 3):
        (detail,) = ends[number].details
        info = error_details_pb2.ErrorInfo()
        assert detail.Unpack(info)
        assert ends[number].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert (info.domain, info.reason) == ("gymmesh", "FIELD_INVALID")


# ---- answers ------------------------------------------------------------------------------


class Babbler:
    """A server in another language whose answers are no messages of the contract."""

    async def exchange(self, _requests: Any, rpc: Any) -> None:
        await rpc.send_initial_metadata(((OFFERED, "1"),))
        while (data := await rpc.read()) is not grpc.aio.EOF:
            for frame in unpack(data).frames:
                if frame.WhichOneof("kind") == "begin":
                    await rpc.write(pack([Message(frame.call, GARBAGE[0], False)]))
                    await rpc.write(pack([End(frame.call, None)]))

    async def unary(self, _request: Any, _rpc: Any) -> bytes:
        return GARBAGE[0]

    async def stream(self, _request: Any, _rpc: Any) -> AsyncIterator[bytes]:
        yield GARBAGE[0]

    @asynccontextmanager
    async def served(self, *, mux: bool) -> AsyncIterator[str]:
        server = grpc.aio.server()
        model: Any = {
            "CreateResponse": grpc.unary_unary_rpc_method_handler(self.unary),
            "StreamResponse": grpc.unary_stream_rpc_method_handler(self.stream),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(MODEL, model),))
        agent: Any = {"Collect": grpc.stream_stream_rpc_method_handler(self.stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(AGENT, agent),))
        if mux:
            service, _, method = EXCHANGE.partition("/")
            exchange: Any = {method: grpc.stream_stream_rpc_method_handler(self.exchange)}
            handler = grpc.method_handlers_generic_handler(service, exchange)
            server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(0)


AGENT = "gymmesh.agent.v1.AgentService"


@pytest.mark.parametrize("transport", ["auto", "plain"])
async def test_an_answer_that_cannot_be_decoded_is_the_peers_fault(
    transport: TransportName, logged: pytest.LogCaptureFixture
) -> None:
    directory = PeerDirectory(transport=transport)
    async with Babbler().served(mux=transport == "auto") as address:
        peer = directory.peer(instance_at(address))
        agent = directory.peer(instance_at(address), AGENT)
        calls: dict[str, Any] = {
            f"{MODEL}/CreateResponse": peer.CreateResponse(unary("ok"), timeout=20.0),
            f"{MODEL}/StreamResponse": anext(peer.StreamResponse(stream("ok"), timeout=20.0)),
            f"{AGENT}/Collect": anext(agent.Collect(_nothing(), timeout=20.0)),
        }
        for method, call in calls.items():
            with pytest.raises(MeshError) as caught:
                await call
            error = caught.value
            assert error.reason == errors_pb2.ERROR_REASON_CONTRACT_VIOLATED
            assert error.message.startswith(address)
            assert error.metadata == {"rule": "response", "method": method, "address": address}
        await directory.close()


async def _nothing() -> AsyncIterator[Any]:
    return
    yield  # makes this an async generator


def test_every_message_of_the_contract_refuses_the_garbage() -> None:
    """The bytes above are none of any request, so that no case passes by chance."""
    for service in SERVICES:
        for spec in methods_of(service).values():
            for data in GARBAGE:
                with pytest.raises(MeshError):
                    spec.request_of(data)


async def test_a_method_that_the_library_lacks(logged: pytest.LogCaptureFixture) -> None:
    """gRPC's own health has List in its contract, and not in its asynchronous servicer."""
    async with channel_to([MODEL]) as channel:
        error = await refusal_of(channel, "/grpc.health.v1.Health/List", False, False, b"")
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        trailers = dict(error.trailing_metadata())
        assert b"NOT_OFFERED" in trailers[STATUS_DETAILS_KEY]


async def sent(address: str, path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """What a call is answered whose headers were written by hand, up to its status."""
    headers = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"a"), (b"te", b"trailers"),
        (b":path", path), (b"content-type", b"application/grpc"), *more,
    ]  # fmt: skip
    asked = [
        http2.PREFACE,
        http2.frame(http2.SETTINGS, 0, 0, b""),
        http2.frame(http2.HEADERS, 4, 1, b"".join(http2.header(*one) for one in headers)),
        http2.frame(http2.DATA, 1, 1, bytes(5)),
    ]
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(asked))
        async with asyncio.timeout(60):
            return await reader.readuntil(b"grpc-status")
    finally:
        writer.close()


async def test_metadata_that_is_not_utf8(logged: pytest.LogCaptureFixture) -> None:
    """gRPC's clients do not send it; what is written by hand may."""
    async with served({MODEL: Probe()}) as address:
        check = b"/grpc.health.v1.Health/Check"
        assert await sent(address, check, (b"authorization", b"Bearer \xff"))


async def paths_that_are_not_utf8() -> None:
    """Sends some; each is followed by a call that has its answer. Run by the test below."""
    async with served({MODEL: Probe()}) as address:
        for _ in range(3):
            await sent(address, b"/a\xff/b")
            async with grpc.aio.insecure_channel(address) as channel:
                untyped: Any = channel
                call = untyped.unary_unary(f"/{MODEL}/CreateResponse")
                request = unary("ok").SerializeToString()
                assert await call(request, timeout=30, wait_for_ready=True)


async def paths_beside_calls() -> None:
    """The same, while a call is in flight that would go on for ever."""
    quiet()
    began = asyncio.Event()

    async def wait(_request: bytes, _context: Any) -> bytes:
        began.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    listener = Listener()
    methods: Any = {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    listener.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", methods)])
    address = f"127.0.0.1:{await listener.start('127.0.0.1:0', None)}"
    for _ in range(3):
        began.clear()
        async with grpc.aio.insecure_channel(address) as channel:
            untyped: Any = channel
            call = untyped.unary_unary("/s/Wait")(b"", wait_for_ready=True)
            async with asyncio.timeout(60):
                await began.wait()
            await sent(address, b"/a\xff/b")
            async with asyncio.timeout(60):
                assert await call.code() is not grpc.StatusCode.OK
    await listener.stop(0)


@pytest.mark.parametrize("sending", ["paths_that_are_not_utf8", "paths_beside_calls"])
async def test_a_path_that_is_not_utf8(sending: str) -> None:
    """It ends gRPC's server, which listens again, at the same port.

    In a process of its own: its core still tells loops that are closed of servers that were ended.
    """
    module = "tests.unit.runtime.test_undecodable"
    script = (
        "import asyncio, logging; logging.basicConfig();"
        f" import {module} as module; asyncio.run(module.{sending}())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(100):
        _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert err.decode().count("starts the server again") == 3
    assert "Traceback" not in err.decode()
