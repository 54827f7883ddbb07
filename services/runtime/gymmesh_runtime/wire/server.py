"""The gRPC server: a thin adapter from RPCs to bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.addresses import SERVICES_HARM, at_port, log_exposure
from gymmesh_runtime.binding import Binding, BoundMethod, not_offered
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import (
    Authorizer,
    Credentials,
    Identities,
    IdentityLimiter,
    audited,
    check_exposure,
    texts_of,
    without_token,
)
from gymmesh_runtime.sizes import MAX_MESSAGE_BYTES, packed_response, too_large
from gymmesh_runtime.wire.aborting import EndStatus
from gymmesh_runtime.wire.library_log import quiet
from gymmesh_runtime.wire.listener import Listener
from gymmesh_runtime.wire.mux.frames import EXCHANGE
from gymmesh_runtime.wire.mux.servicer import MuxServicer
from gymmesh_runtime.wire.mux.table import TableLimits
from gymmesh_runtime.wire.options import server_options

_STATUS = health_pb2.HealthCheckResponse
# How long a caller whose stream is refused may take to send its first request.
_FIRST_REQUEST_S: Final = 1.0
# How many requests of callers that are not known are taken in at a time: each may be as large as a
# message of anybody.
_STRANGERS: Final = 2


class MeshServer:
    """A gRPC server with health and reflection for a set of bindings, and the mux to them.

    It admits callers according to the credentials' configuration, and logs control actions. Health
    is NOT_SERVING until ``set_serving(True)``. ``mux`` False: plain RPCs only. ``extras``:
    generated ``add_…_to_server`` functions that add services outside the contract. ``credentials``:
    the certificates with which it listens; without certificates it is plain, and everyone who can
    connect may call.
    """

    def __init__(
        self,
        bindings: Iterable[Binding],
        *,
        mux: bool = True,
        extras: Iterable[Callable[[Any], None]] = (),
        credentials: Credentials | None = None,
    ) -> None:
        bindings = list(bindings)
        quiet()
        self._credentials = credentials or Credentials()
        security = self._credentials.config
        named = security.identities
        authorizer = Authorizer(Identities(named)) if named else None
        strangers = asyncio.Semaphore(_STRANGERS)
        access = _Access(authorizer, security.limits.message_bytes, strangers)
        limiter = IdentityLimiter(security.limits) if security.limits.any else None
        self._server = Listener(server_options())
        self._health = health.aio.HealthServicer()
        self._names = [""]  # the empty name stands for the server as a whole
        for binding in bindings:
            self._names.append(binding.service)
            for method in binding.methods.values():
                method.wrap(audited)
                if limiter is not None:
                    method.wrap(limiter.limited)
            handlers = {
                name: _method_handler(method, access) for name, method in binding.methods.items()
            }
            added = grpc.method_handlers_generic_handler(binding.service, handlers)
            self._server.add_generic_rpc_handlers((added,))
        limits = TableLimits(message_bytes=security.limits.message_bytes)
        self._mux = MuxServicer(bindings, limits, None, authorizer, limiter) if mux else None
        if self._mux is not None:
            self._names.append(EXCHANGE.partition("/")[0])
            self._server.add_generic_rpc_handlers((self._mux.handler(),))
        known_to_all = _Access(None, MAX_MESSAGE_BYTES, strangers, guarded=authorizer is not None)
        open_to_all: Any = _Generic(self._server, known_to_all)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, open_to_all)
        generic: Any = _Generic(self._server, access)
        if security.offers_reflection:
            reflected = (*self._names[1:], "grpc.health.v1.Health", reflection.SERVICE_NAME)
            add_reflection: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
            add_reflection(reflection.aio.ReflectionServicer(reflected), generic)
        for add in extras:
            add(generic)

    async def start(self, host: str, port: int) -> int:
        """Binds and starts; returns the port (``port`` 0: the system chooses).

        Raises OSError when the address cannot be bound, and ConfigError when others could reach it
        without TLS (see security/exposure.py).
        """
        check_exposure(host, self._credentials.config)
        await self.set_serving(False)
        secure = self._credentials.server()
        try:
            bound = await self._server.start(at_port(host, port), secure)
        except RuntimeError as exc:
            raise OSError(
                f"cannot listen on {at_port(host, port)}: the port is taken, or the host is not an "
                "address of this machine"
            ) from exc
        if secure is None:
            log_exposure(f"{self._names[1]} is served", host, SERVICES_HARM)
        return bound

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of every service."""
        for name in self._names:
            await self._health.set(name, _STATUS.SERVING if serving else _STATUS.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, waits up to ``grace`` seconds for running calls, then cancels them."""
        if self._mux is not None:
            self._mux.leave("the server is draining")
        await self._server.stop(grace)


@dataclass(frozen=True, slots=True)
class _Access:
    """What calls are let in, and how large their messages may be.

    Attributes:
        authorizer: None: all are let in.
        most_bytes: of a request.
        strangers: held while a request is read whose caller is not known.
        guarded: the server knows its callers, and these methods are open to others, too.
    """

    authorizer: Authorizer | None
    most_bytes: int
    strangers: asyncio.Semaphore
    guarded: bool = False

    @property
    def reads_late(self) -> bool:
        """Whether a request is read by its handler, after its caller was looked at. gRPC would
        take in the whole of it before.
        """
        return self.guarded or self.authorizer is not None

    async def whole(
        self, arrived: Any, rpc: grpc.aio.ServicerContext[Any, Any], name: str
    ) -> bytes:
        """The only request of an admitted call. Raises MeshError if none arrives."""
        if isinstance(arrived, bytes):
            return arrived
        if not self.guarded:
            data: Any = await rpc.read()
        else:
            try:
                async with asyncio.timeout(_FIRST_REQUEST_S), self.strangers:
                    data = await rpc.read()
            except TimeoutError:
                raise MeshError(
                    errors_pb2.ERROR_REASON_QUEUE_FULL,
                    f"the request of {name} did not arrive within {_FIRST_REQUEST_S:g} s",
                    metadata={"queue": "requests from unknown callers", "limit": str(_STRANGERS)},
                    retry_after_s=_FIRST_REQUEST_S,
                ) from None
        if data is grpc.aio.EOF:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the caller ended a call of {name} without sending a request",
                metadata={"field": "", "method": name},
            )
        whole: bytes = data
        return whole

    def admit(
        self, rpc: grpc.aio.ServicerContext[Any, Any], method: str
    ) -> tuple[Mapping[str, str], str]:
        """A call's metadata and its caller's name. Raises MeshError for one that is not let in."""
        metadata = texts_of(rpc.invocation_metadata())
        if self.authorizer is None:
            return metadata, ""
        identity = self.authorizer.admit(self.authorizer.caller(rpc, metadata), method)
        return without_token(metadata), identity.name

    def check_size(self, data: bytes, method: str, message: str = "") -> None:
        """Raises MESSAGE_TOO_LARGE; ``message`` is the full name of the request's type."""
        if len(data) > self.most_bytes:
            what = f"the request ({message})" if message else "the request"
            raise too_large(what, self.most_bytes, size=len(data), method=method)


def _method_handler(method: BoundMethod, access: _Access) -> Any:
    shape = method.spec.shape
    if access.reads_late:
        shape = shape.replace("unary_", "stream_", 1)  # the same on the wire
    make = getattr(grpc, f"{shape}_rpc_method_handler")
    serve = _serve_stream if method.spec.server_streaming else _serve_unary
    # No request_deserializer: gRPC would log a traceback and answer a bare INTERNAL where one
    # fails. The handlers decode by themselves, and pack by themselves what may be too large.
    return make(serve(method, access))


def _serve_unary(method: BoundMethod, access: _Access) -> Any:
    name, of = method.spec.full_name, method.spec.request_class.DESCRIPTOR.full_name

    async def serve(arrived: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> Any:
        data, request = b"", None
        try:
            metadata, identity = access.admit(rpc, name)
            data = await access.whole(arrived, rpc, name)
            access.check_size(data, name, of)
            request = method.read(data)
            arrived, data = None, b""  # not to be kept for as long as the call takes
            response = await method.call(
                request, timeout=rpc.time_remaining(), metadata=metadata, identity=identity
            )
            return packed_response(method.spec, response)
        except MeshError as error:
            ending = EndStatus.of(error)
        arrived, data, request = None, b"", None
        await ending.send(rpc)

    return serve


def _serve_stream(method: BoundMethod, access: _Access) -> Any:
    name, of = method.spec.full_name, method.spec.request_class.DESCRIPTOR.full_name

    def read(data: bytes) -> Any:
        access.check_size(data, name, of)
        return method.spec.request_of(data)

    async def serve(data: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        requests = _Requests(data, read) if method.spec.client_streaming else None
        request: Any = requests
        responses: Any = None
        ending: EndStatus | None = None
        try:
            metadata, identity = access.admit(rpc, name)
            if requests is None:
                data = await access.whole(data, rpc, name)
                access.check_size(data, name, of)
                request = method.read(data)
            responses = method.stream(
                request, timeout=rpc.time_remaining(), metadata=metadata, identity=identity
            )
            async for response in responses:
                yield packed_response(method.spec, response)
        except MeshError as error:
            ending = EndStatus.of(error)
        finally:
            if responses is not None:
                await responses.aclose()
        if ending is not None:
            if requests is not None:
                await requests.read_first(access.strangers)
            data = request = requests = responses = None
            await ending.send(rpc)

    return serve


class _Requests:
    """A caller's stream of requests, each decoded as it is read; ``read`` raises MeshError."""

    def __init__(self, data: AsyncIterator[bytes], read: Callable[[bytes], Any]) -> None:
        self._data = data
        self._read = read
        self._iterator: AsyncIterator[bytes] | None = None

    async def read_first(self, strangers: asyncio.Semaphore) -> None:
        """Reads the first message of a stream that is refused, if one comes within a second, and
        not those of many at a time.

        A status that reaches a client of grpc.aio while it writes its first request is lost: the
        write fails, and the client reports INTERNAL, "Internal error from Core", instead.
        """
        if self._iterator is None:
            with suppress(TimeoutError, StopAsyncIteration, grpc.aio.UsageError):
                async with asyncio.timeout(_FIRST_REQUEST_S), strangers:
                    await anext(aiter(self._data))

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

    def __init__(self, server: Listener, access: _Access) -> None:
        self._server = server
        self._access = access

    def add_generic_rpc_handlers(self, _handlers: Any) -> None:
        """The same methods come once more by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        decoding = {
            name: _decoding(f"{service}/{name}", handler, self._access)
            for name, handler in handlers.items()
        }
        added = grpc.method_handlers_generic_handler(service, decoding)
        self._server.add_generic_rpc_handlers((added,))


def _decoding(name: str, handler: Any, access: _Access) -> Any:
    """The handler of a method, whose callers are let in and requests decoded inside it."""

    def read(data: bytes) -> Any:
        access.check_size(data, name)
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the request of {name} cannot be decoded",
                metadata={"field": "", "method": name},
            ) from None

    async def unary(data: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            access.admit(rpc, name)
            data = await access.whole(data, rpc, name)
            return await handler.unary_unary(read(data), rpc)
        except MeshError as error:
            ending = EndStatus.of(error)
        except NotImplementedError:  # of a generated base class; gRPC would log a traceback
            ending = EndStatus.of(not_offered(name))
        data = b""
        await ending.send(rpc)

    async def stream(data: Any, rpc: grpc.aio.ServicerContext[Any, Any]) -> None:
        serve = handler.stream_stream or handler.unary_stream
        requests = _Requests(data, read) if handler.request_streaming else None
        served: Any = None
        try:
            access.admit(rpc, name)
            if requests is None:
                data = await access.whole(data, rpc, name)
            served = serve(read(data) if requests is None else requests, rpc)
            if isawaitable(served):
                await served  # it writes its responses by itself
                return
            async for response in served:
                await rpc.write(response)
            return
        except MeshError as error:
            ending = EndStatus.of(error)
        except NotImplementedError:
            ending = EndStatus.of(not_offered(name))
        if requests is not None:
            await requests.read_first(access.strangers)
        data = requests = served = None
        await ending.send(rpc)

    serializer = handler.response_serializer
    late = access.reads_late
    if handler.request_streaming or (handler.response_streaming and late):
        return grpc.stream_stream_rpc_method_handler(stream, response_serializer=serializer)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(stream, response_serializer=serializer)
    if late:
        return grpc.stream_unary_rpc_method_handler(unary, response_serializer=serializer)
    return grpc.unary_unary_rpc_method_handler(unary, response_serializer=serializer)
