"""The peer for a service in another process: its calls as frames over the mux."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.contract import MethodSpec, methods_of
from gymmesh_runtime.errors import MeshError, bounded_timeout
from gymmesh_runtime.sizes import MIB, packed_request
from gymmesh_runtime.wire.mux.calling import call_stream, call_unary
from gymmesh_runtime.wire.mux.connection import MuxConnection
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.plain import PlainPeer

#: Larger requests go by plain RPCs: what a call saves by sharing a message is little beside its
#: bytes then, which a plain RPC sends in half the time.
LARGE_BYTES: Final = MIB


class MuxPeer:
    """Has the methods of one gRPC service at one address.

    It uses plain RPCs if the peer does not offer the mux, if the request is large, and for every
    method with a request stream.
    """

    def __init__(self, connection: MuxConnection, plain: PlainPeer, service: str) -> None:
        for name, spec in methods_of(service).items():
            call = getattr(plain, name)
            if not spec.client_streaming:
                make = _stream if spec.server_streaming else _unary
                call = make(connection, spec, call)
            setattr(self, name, call)


def _unary(connection: MuxConnection, spec: MethodSpec, plain: Any) -> Any:
    async def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> Any:
        data = packed_request(spec, request)
        exchange = connection.exchange
        if len(data) > LARGE_BYTES:
            exchange = None
        elif exchange is None:
            exchange, timeout = await _open(connection, spec, timeout)
        if exchange is None:
            return await plain(data, timeout=timeout, metadata=metadata)
        deadline = time.monotonic() + timeout
        try:
            return await call_unary(exchange, spec, data, timeout, metadata)
        except MeshError:
            left = deadline - time.monotonic()
            if not exchange.refused or left <= 0:
                raise
        return await plain(data, timeout=left, metadata=metadata)

    return call


def _stream(connection: MuxConnection, spec: MethodSpec, plain: Any) -> Any:
    async def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> AsyncIterator[Any]:
        data = packed_request(spec, request)
        exchange = None
        if len(data) <= LARGE_BYTES:
            exchange, timeout = await _open(connection, spec, timeout)
        deadline = time.monotonic() + timeout
        if exchange is not None:
            try:
                async with aclosing(call_stream(exchange, spec, data, timeout, metadata)) as over:
                    async for response in over:
                        yield response
                return
            except MeshError:
                timeout = deadline - time.monotonic()
                if not exchange.refused or timeout <= 0:
                    raise
        async with aclosing(plain(data, timeout=timeout, metadata=metadata)) as responses:
            async for response in responses:
                yield response

    return call


async def _open(
    connection: MuxConnection, spec: MethodSpec, timeout: float
) -> tuple[Exchange | None, float]:
    """The exchange to call over, None: call by plain RPCs; and the seconds left of the timeout."""
    deadline = time.monotonic() + bounded_timeout(timeout, spec.full_name)
    exchange = connection.exchange
    if exchange is None:
        exchange = await connection.open(deadline - time.monotonic(), spec.full_name)
    timeout = deadline - time.monotonic()
    return exchange if timeout > 0 else None, timeout
