"""The gRPC server: a thin adapter from RPCs to bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, to_status
from gymmesh_runtime.listening import SERVICES_HARM, at_port, log_exposure
from gymmesh_runtime.wire.library_log import quiet_cancellations
from gymmesh_runtime.wire.mux.frames import EXCHANGE
from gymmesh_runtime.wire.mux.servicer import MuxServicer
from gymmesh_runtime.wire.options import server_options
from gymmesh_runtime.wire.sizes import packed_response, read_request

_MAX_DETAILS: Final = 200


class MeshServer:
    """A gRPC server with health and reflection for a set of bindings, and the mux to them.

    Health is NOT_SERVING until ``set_serving(True)``. ``mux`` False: plain RPCs only. ``extras``
    add services that are not of the contract, as generated ``add_…_to_server`` functions do.
    """

    def __init__(
        self,
        bindings: Iterable[Binding],
        *,
        mux: bool = True,
        extras: Iterable[Callable[[Any], None]] = (),
    ) -> None:
        bindings = list(bindings)
        quiet_cancellations()
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
        generic: Any = _Generic(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, generic)
        reflected = (*self._names[1:], "grpc.health.v1.Health", reflection.SERVICE_NAME)
        add_reflection: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
        add_reflection(reflection.aio.ReflectionServicer(reflected), generic)
        for add in extras:
            add(generic)

    async def start(self, host: str, port: int) -> int:
        """Binds and starts; returns the port (``port`` 0: the system chooses).

        Raises OSError when the address cannot be bound.
        """
        await self.set_serving(False)
        try:
            bound = self._server.add_insecure_port(at_port(host, port))
        except RuntimeError as exc:
            raise OSError(
                f"cannot listen on {at_port(host, port)}: the port is taken, or the host is not "
                "an address of this machine"
            ) from exc
        await self._server.start()
        log_exposure(f"{self._names[1]} is served", host, SERVICES_HARM)
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
    # No request_deserializer: gRPC would log a traceback and answer a bare INTERNAL where one
    # fails. The handlers decode by themselves, and pack by themselves what may be too large.
    return make(serve)


def _serve_unary(method: BoundMethod) -> Any:
    async def serve(data: bytes, rpc: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            request = method.read(data)
            del data  # not to be kept for as long as the call takes
            response = await method.call(
                request, timeout=rpc.time_remaining(), metadata=_metadata(rpc)
            )
            return packed_response(method.spec, response)
        except MeshError as error:
            await _abort(rpc, error)

    return serve


def _serve_stream(method: BoundMethod) -> Any:
    async def serve(data: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        responses: Any = None
        try:
            many = method.spec.client_streaming
            read = partial(read_request, method.spec)
            request = _Requests(data, read) if many else method.read(data)
            responses = method.stream(
                request, timeout=rpc.time_remaining(), metadata=_metadata(rpc)
            )
            async for response in responses:
                yield packed_response(method.spec, response)
        except MeshError as error:
            await _abort(rpc, error)
        finally:
            if responses is not None:
                await responses.aclose()

    return serve


class _Requests:
    """A caller's stream of requests, each decoded as it is read; ``read`` raises MeshError."""

    def __init__(self, data: AsyncIterator[bytes], read: Callable[[bytes], Any]) -> None:
        self._data = data
        self._read = read
        self._iterator: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._iterator is None:
            # Not before: gRPC's iterator complains when it is dropped unread, as by a refusal.
            self._iterator = aiter(self._data)
        return self._read(await anext(self._iterator))


class _Generic:
    """Adds services that are not bindings (health, reflection) to a server.

    The generated ``add_…_to_server`` functions take it for one. A request that cannot be decoded
    is answered as everywhere else.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, _handlers: Any) -> None:
        """The same methods come once more by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Adds a service's methods."""
        decoding = {
            name: _decoding(f"{service}/{name}", handler) for name, handler in handlers.items()
        }
        added = grpc.method_handlers_generic_handler(service, decoding)
        self._server.add_generic_rpc_handlers((added,))


def _decoding(name: str, handler: Any) -> Any:
    """The handler of a method, whose requests are decoded inside it."""

    def read(data: bytes) -> Any:
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the request of {name} cannot be decoded",
                metadata={"field": "", "method": name},
            ) from None

    async def unary(data: bytes, rpc: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            request = read(data)
        except MeshError as error:
            await _abort(rpc, error)
        return await handler.unary_unary(request, rpc)

    async def stream(data: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> None:
        serve = handler.stream_stream or handler.unary_stream
        try:
            request = _Requests(data, read) if handler.request_streaming else read(data)
            served = serve(request, rpc)
            if isawaitable(served):
                await served  # it writes its responses by itself
                return
            async for response in served:
                await rpc.write(response)
        except MeshError as error:
            await _abort(rpc, error)

    serializer = handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(stream, response_serializer=serializer)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, response_serializer=serializer)
    return grpc.unary_unary_rpc_method_handler(unary, response_serializer=serializer)


def _metadata(rpc: grpc.aio.ServicerContext[Any, Any]) -> dict[str, str]:
    return {key: value for key, value in rpc.invocation_metadata() or () if isinstance(value, str)}


async def _abort(rpc: grpc.aio.ServicerContext[Any, Any], error: MeshError) -> None:
    status = to_status(error)
    trailers = ((STATUS_DETAILS_KEY, status.SerializeToString()),)
    # The whole message is in the status; this copy, for other clients, is percent-encoded.
    await rpc.abort(error.code, status.message[:_MAX_DETAILS], trailing_metadata=trailers)
