"""Messages of more than 64 MiB: refused with their size, the limit, and which message it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import pytest
from google.rpc import status_pb2

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, from_rpc_error, from_status
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES
from tests.unit.runtime.probe import MODEL, PATHS, instance_at, served, stream, unary

AGENT: Final = "gymmesh.agent.v1.AgentService"
BOUND_S: Final = 240.0
#: What fills a message: one text, of which each path makes a copy or two.
TEXT: Final = "x" * MAX_MESSAGE_BYTES


class Large:
    """Answers with as much as the request's `rollout_id` says, and a little more."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: Any
    ) -> model_pb2.CreateResponseResponse:
        text = TEXT if request.rollout_id == "large" else "small"
        return model_pb2.CreateResponseResponse(call_id=text)

    async def StreamResponse(
        self, request: model_pb2.StreamResponseRequest, context: Any
    ) -> AsyncIterator[model_pb2.StreamResponseResponse]:
        answer = await self.CreateResponse(request.call, context)
        yield model_pb2.StreamResponseResponse(completed=answer)

    async def Collect(
        self, requests: AsyncIterator[agent_pb2.CollectRequest], context: Any
    ) -> AsyncIterator[agent_pb2.CollectResponse]:
        async for _ in requests:
            yield agent_pb2.CollectResponse()


async def refusal(call: Any) -> MeshError:
    with pytest.raises(MeshError) as raised:
        await asyncio.wait_for(call, BOUND_S)
    return raised.value


def says(error: MeshError, which: str, method: str, message: str) -> None:
    """It names the reason, the size, the limit, the method and the message."""
    assert error.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    size = int(error.metadata["size_bytes"])
    assert size > MAX_MESSAGE_BYTES
    assert error.metadata["limit_bytes"] == str(MAX_MESSAGE_BYTES)
    assert error.metadata["method"] == method
    for part in (f"{which} ({message})", method, str(size), str(MAX_MESSAGE_BYTES)):
        assert part in error.message, error.message


async def read(responses: Any) -> None:
    async for _ in responses:
        pass


@pytest.mark.parametrize("path", ["mux", "plain"])
async def test_our_client_checks_before_it_sends(path: str) -> None:
    async with PATHS[path]({MODEL: Large()}) as directory:
        peer = directory.peer(await directory.pick(MODEL, "policy"))
        request = unary("small", request_id=TEXT)
        error = await refusal(peer.CreateResponse(request, timeout=BOUND_S))
        name = "gymmesh.model.v1.CreateResponseRequest"
        says(error, "the request", f"{MODEL}/CreateResponse", name)
        whole = model_pb2.StreamResponseRequest(call=request)
        error = await refusal(read(peer.StreamResponse(whole, timeout=BOUND_S)))
        says(
            error,
            "the request",
            f"{MODEL}/StreamResponse",
            "gymmesh.model.v1.StreamResponseRequest",
        )
        await peer.CreateResponse(unary("small"), timeout=BOUND_S)


@pytest.mark.parametrize("path", ["mux", "plain"])
async def test_our_server_checks_before_it_answers(path: str) -> None:
    async with PATHS[path]({MODEL: Large()}) as directory:
        peer = directory.peer(await directory.pick(MODEL, "policy"))
        error = await refusal(peer.CreateResponse(unary("large"), timeout=BOUND_S))
        name = "gymmesh.model.v1.CreateResponseResponse"
        says(error, "the response", f"{MODEL}/CreateResponse", name)
        error = await refusal(read(peer.StreamResponse(stream("large"), timeout=BOUND_S)))
        name = "gymmesh.model.v1.StreamResponseResponse"
        says(error, "the response", f"{MODEL}/StreamResponse", name)
        await peer.CreateResponse(unary("small"), timeout=BOUND_S)


async def test_one_of_a_stream_of_requests_ends_its_call_with_the_reason() -> None:
    async def requests() -> AsyncIterator[agent_pb2.CollectRequest]:
        yield agent_pb2.CollectRequest()
        hello = agent_pb2.CollectHello(contract_version=TEXT)
        yield agent_pb2.CollectRequest(hello=hello)
        raise AssertionError("nobody reads on")

    async with PATHS["plain"]({AGENT: Large()}) as directory:
        (instance,) = directory.instances()
        peer = directory.peer(instance, AGENT)
        error = await refusal(read(peer.Collect(requests(), timeout=BOUND_S)))
        says(error, "the request", f"{AGENT}/Collect", "gymmesh.agent.v1.CollectRequest")


async def foreign(address: str, method: str, data: bytes) -> grpc.aio.AioRpcError:
    """What gRPC raises for a call by a client that knows no limits."""

    async def once() -> AsyncIterator[bytes]:
        yield data

    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as one:
        channel: Any = one
        if method.endswith("/Collect"):
            call: Any = read(channel.stream_stream(f"/{method}")(once()))
        else:
            call = channel.unary_unary(f"/{method}")(data)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(call, BOUND_S)
    return raised.value


async def test_a_foreign_client_gets_the_whole_error() -> None:
    large = unary("small", request_id=TEXT).SerializeToString()
    hello = agent_pb2.CollectHello(contract_version=TEXT)
    start = agent_pb2.CollectRequest(hello=hello).SerializeToString()
    async with served({MODEL: Large(), AGENT: Large()}) as address:
        for method, data, name in (
            (f"{MODEL}/CreateResponse", large, "gymmesh.model.v1.CreateResponseRequest"),
            (f"{AGENT}/Collect", start, "gymmesh.agent.v1.CollectRequest"),
        ):
            raised = await foreign(address, method, data)
            trailers = dict(raised.trailing_metadata())
            status = status_pb2.Status.FromString(trailers[STATUS_DETAILS_KEY])
            says(from_status(status), "the request", method, name)


async def test_what_grpc_itself_refuses_is_known_by_its_words() -> None:
    data = bytes(2 * MAX_MESSAGE_BYTES + 1)
    method = f"{MODEL}/CreateResponse"
    async with served({MODEL: Large()}) as address:
        raised = await foreign(address, method, data)
    assert STATUS_DETAILS_KEY not in dict(raised.trailing_metadata() or ())
    error = from_rpc_error(raised, address, method)
    assert error.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert error.metadata == {
        "address": address,
        "method": method,
        "size_bytes": str(len(data)),
        "limit_bytes": str(2 * MAX_MESSAGE_BYTES),
    }
    assert f"the request of {method} was refused because of its size" in error.message


@pytest.mark.parametrize(
    ("limit", "answer", "which", "sizes"),
    [
        ("grpc.max_receive_message_length", 10, "request", ("2000", "1000")),
        ("grpc.max_send_message_length", 2000, "response", ("2000", "1000")),
    ],
)
async def test_a_foreign_servers_limit_is_known_by_its_words(
    limit: str, answer: int, which: str, sizes: tuple[str, str]
) -> None:
    server = grpc.aio.server(options=[(limit, 1000)])

    async def serve(request: bytes, context: Any) -> bytes:
        return bytes(answer)

    handlers: Any = {"GetModel": grpc.unary_unary_rpc_method_handler(serve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(MODEL, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    directory = PeerDirectory(transport="plain")
    try:
        peer = directory.peer(instance_at(f"127.0.0.1:{port}"))
        request = model_pb2.GetModelRequest()
        if which == "request":
            # An unknown field of 2,000 bytes in all.
            request.MergeFromString(b"\xfa\x01\xcc\x0f" + bytes(1996))
        error = await refusal(peer.GetModel(request, timeout=BOUND_S))
    finally:
        await directory.close()
        await server.stop(None)
    assert error.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
    assert (error.metadata["size_bytes"], error.metadata["limit_bytes"]) == sizes
    assert f"the {which} of {MODEL}/GetModel was refused because of its size" in error.message
