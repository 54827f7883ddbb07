"""Serves the scripted services over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gymmesh_conformance.errors import STATUS_KEY, CallError
from gymmesh_conformance.scripted.world import Room, ScriptedRegistry
from gymmesh_conformance.services import Rpc, full_name, methods
from gymmesh_runtime.security import Credentials

# As for pings, what a gRPC library does by default: a client that pings too often is found out.
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


@asynccontextmanager
async def served(
    servicers: Mapping[str, object],
    address: str = "127.0.0.1:0",
    credentials: Credentials | None = None,
) -> AsyncIterator[str]:
    """Serves servicers by full service name; gives the address. Port 0: the system chooses.

    ``credentials``: the certificate to serve with; None: plain. Raises ConfigError without one.
    """
    shown = None if credentials is None else credentials.server()
    server = grpc.aio.server(options=_OPTIONS)
    for service, servicer in servicers.items():
        server.add_generic_rpc_handlers((_handler(service, servicer),))
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    for name in ("", *servicers):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    if shown is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, shown)
    await server.start()
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(0.2)


@asynccontextmanager
async def served_world(
    rooms: list[Room],
    registry_address: str = "127.0.0.1:0",
    credentials: Credentials | None = None,
) -> AsyncIterator[str]:
    """Serves every room and a registry that lists them; gives the registry's address."""
    async with AsyncExitStack() as stack:
        instances = []
        for room in rooms:
            one = served(room.servicers, credentials=credentials)
            instances.append(room.instance(await stack.enter_async_context(one)))
        registry = {full_name("discovery"): ScriptedRegistry(instances)}
        yield await stack.enter_async_context(served(registry, registry_address, credentials))


def _handler(service: str, servicer: object) -> Any:
    found = {
        one.method.name: _method_handler(one, getattr(servicer, one.method.name))
        for one in methods(service)
        if hasattr(servicer, one.method.name)
    }
    return grpc.method_handlers_generic_handler(service, found)


def _method_handler(rpc: Rpc, method: Any) -> Any:
    make: Any = grpc.unary_unary_rpc_method_handler
    if rpc.streams_down:
        make = grpc.unary_stream_rpc_method_handler
    if rpc.streams_up:
        make = grpc.stream_stream_rpc_method_handler
    return make(
        _stream(method) if rpc.streams_down else _unary(method),
        request_deserializer=rpc.request_class.FromString,
        response_serializer=rpc.response_class.SerializeToString,
    )


def _unary(method: Any) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except CallError as error:
            await _abort(context, error)

    return serve


def _stream(method: Any) -> Any:
    async def serve(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in method(request, context):
                yield response
        except CallError as error:
            await _abort(context, error)

    return serve


async def _abort(context: Any, error: CallError) -> None:
    assert error.status is not None
    trailers = ((STATUS_KEY, error.status.SerializeToString()),)
    await context.abort(error.code, error.message, trailing_metadata=trailers)
