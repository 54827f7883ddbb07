"""Serves the minimal services; `python -m tests.conformance.minimal` does so from a shell.

Beside the services themselves: their health, messages of 64 MiB, and errors as errors.proto wants
them for requests that cannot be decoded, which gRPC's own handlers answer without a reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.verify.v1 import verify_pb2
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.capitals import Capitals
from tests.conformance.minimal.draining import Draining
from tests.conformance.minimal.echo import Echo
from tests.conformance.minimal.registry import Registry
from tests.conformance.minimal.status import OPTIONS, fail

_GRACE_S: Final = 5.0
# Of a session that is open, and so not new work while the server goes down.
_OF_SESSIONS: Final = ("CallTool", "NextTurn", "PlayEpisode", "Verify", "CloseSession")

Servicer = Capitals | Echo | MinimalAgent | Registry

_SERVICES: Final[Mapping[type[Servicer], tuple[ServiceDescriptor, ...]]] = {
    Capitals: (
        resource_pb2.DESCRIPTOR.services_by_name["ResourceService"],
        verify_pb2.DESCRIPTOR.services_by_name["VerifyService"],
    ),
    Echo: (model_pb2.DESCRIPTOR.services_by_name["ModelService"],),
    MinimalAgent: (agent_pb2.DESCRIPTOR.services_by_name["AgentService"],),
    Registry: (discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"],),
}


@asynccontextmanager
async def serving(
    service: Servicer, address: str = "127.0.0.1:0", grace_s: float = _GRACE_S
) -> AsyncIterator[str]:
    """Serves one service; gives its address. Port 0: the system chooses.

    `grace_s`: how long calls that run may go on when it goes down.
    """
    sessions = service.open_sessions if isinstance(service, Capitals) else lambda: 0
    draining = Draining(sessions)
    server = grpc.aio.server(options=OPTIONS)
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    descriptors = next(found for kind, found in _SERVICES.items() if isinstance(service, kind))
    for descriptor in descriptors:
        methods = {
            method.name: _handler(method, getattr(service, method.name), draining)
            for method in descriptor.methods
        }
        handlers = grpc.method_handlers_generic_handler(descriptor.full_name, methods)
        server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port(address)
    await server.start()
    for name in ("", *(descriptor.full_name for descriptor in descriptors)):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        await healthy.enter_graceful_shutdown()
        await draining.drain(grace_s)
        await server.stop(0.2)
        if isinstance(service, MinimalAgent):
            await service.close()


def _handler(method: MethodDescriptor, serve: Any, draining: Draining) -> Any:
    kind = message_factory.GetMessageClass(method.input_type)
    name = f"{method.containing_service.full_name}/{method.name}"

    async def decoded(data: bytes, context: Any) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            code = grpc.StatusCode.INVALID_ARGUMENT
            await fail(context, code, "FIELD_INVALID", "no such request", field="", method=name)

    async def unary(data: bytes, context: Any) -> bytes:
        request = await decoded(data, context)
        new = method.name not in _OF_SESSIONS
        response = await draining.unary(serve(request, context), context, new=new)
        return response.SerializeToString()  # type: ignore[no-any-return]  # any message

    async def stream(data: Any, context: Any) -> AsyncIterator[bytes]:
        many = method.client_streaming
        request = _each(data, context, decoded) if many else await decoded(data, context)
        responses = serve(request, context)
        try:
            async for response in draining.stream(responses, context):
                yield response.SerializeToString()
        finally:
            await responses.aclose()

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(stream)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(stream)
    return grpc.unary_unary_rpc_method_handler(unary)


async def _each(data: Any, context: Any, decoded: Any) -> AsyncIterator[Any]:
    async for one in data:
        yield await decoded(one, context)
