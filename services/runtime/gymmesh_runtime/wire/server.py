"""The gRPC server: a thin adapter from RPCs to bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, to_status
from gymmesh_runtime.wire.mux.frames import EXCHANGE
from gymmesh_runtime.wire.mux.servicer import MuxServicer
from gymmesh_runtime.wire.options import server_options
from gymmesh_runtime.wire.packed import packer

_MAX_DETAILS: Final = 200


class MeshServer:
    """A gRPC server with health and reflection for a set of bindings, and the mux to them.

    Health is NOT_SERVING until ``set_serving(True)``. ``mux`` False: plain RPCs only.
    """

    def __init__(self, bindings: Iterable[Binding], *, mux: bool = True) -> None:
        bindings = list(bindings)
        self._server = grpc.aio.server(options=server_options())
        self._health = health.aio.HealthServicer()
        self._names = [""]  # the empty name stands for the server as a whole
        for binding in bindings:
            self._names.append(binding.service)
            self._server.add_generic_rpc_handlers((_handler(binding),))
        self._mux = MuxServicer(bindings) if mux else None
        if self._mux is not None:
            self._names.append(EXCHANGE.partition("/")[0])
            self._server.add_generic_rpc_handlers((self._mux.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflected = (*self._names[1:], "grpc.health.v1.Health", reflection.SERVICE_NAME)
        reflection.enable_server_reflection(reflected, self._server)

    async def start(self, host: str, port: int) -> int:
        """Binds and starts; returns the port (``port`` 0: the system chooses).

        Raises OSError when the address cannot be bound.
        """
        await self.set_serving(False)
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as exc:
            raise OSError(
                f"cannot listen on {host}:{port}: the port is taken, or the host is not "
                "an address of this machine"
            ) from exc
        await self._server.start()
        return bound

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of every service."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in self._names:
            await self._health.set(name, status)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, lets running ones end for ``grace`` seconds, then cancels them."""
        if self._mux is not None:
            self._mux.leave("the server is draining")
        await self._server.stop(grace)


def _handler(binding: Binding) -> Any:
    handlers = {name: _method_handler(method) for name, method in binding.methods.items()}
    return grpc.method_handlers_generic_handler(binding.service, handlers)


def _method_handler(method: BoundMethod) -> Any:
    spec = method.spec
    if spec.client_streaming:
        make: Any = grpc.stream_stream_rpc_method_handler
    elif spec.server_streaming:
        make = grpc.unary_stream_rpc_method_handler
    else:
        make = grpc.unary_unary_rpc_method_handler
    serve = _serve_stream(method) if spec.server_streaming else _serve_unary(method)
    response = spec.response_class
    return make(
        serve,
        request_deserializer=spec.request_class.FromString,
        response_serializer=packer(response)
        if spec.client_streaming
        else response.SerializeToString,
    )


def _serve_unary(method: BoundMethod) -> Any:
    async def serve(request: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method.call(request, timeout=rpc.time_remaining(), metadata=_metadata(rpc))
        except MeshError as error:
            await _abort(rpc, error)

    return serve


def _serve_stream(method: BoundMethod) -> Any:
    async def serve(request: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        responses = method.stream(request, timeout=rpc.time_remaining(), metadata=_metadata(rpc))
        try:
            async for response in responses:
                yield response
        except MeshError as error:
            await _abort(rpc, error)
        finally:
            await responses.aclose()  # type: ignore[attr-defined]  # an async generator

    return serve


def _metadata(rpc: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    return {key: value for key, value in rpc.invocation_metadata() or () if isinstance(value, str)}


async def _abort(rpc: grpc.aio.ServicerContext[Any, Any], error: MeshError) -> None:
    status = to_status(error)
    trailers = ((STATUS_DETAILS_KEY, status.SerializeToString()),)
    # The whole message is in the status; this copy, for other clients, is percent-encoded.
    await rpc.abort(error.code, status.message[:_MAX_DETAILS], trailing_metadata=trailers)
