"""The peer for a service in another process: its calls as frames over the mux."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.contract import MethodSpec, methods_of
from gymmesh_runtime.errors import bounded_timeout
from gymmesh_runtime.wire.mux.calling import call_stream, call_unary
from gymmesh_runtime.wire.mux.connection import MuxConnection
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.plain import PlainPeer


class MuxPeer:
    """Has the methods of one gRPC service at one address.

    Calls by plain RPCs where the peer does not offer the mux, and methods with a
    request stream always.
    """

    def __init__(self, connection: MuxConnection, plain: PlainPeer, service: str) -> None:
        for name, spec in methods_of(service).items():
            call = getattr(plain, name)
            if not spec.client_streaming:
                make = _stream if spec.server_streaming else _unary
                call = make(connection, spec, call)
            setattr(self, name, call)


def _unary(connection: MuxConnection, spec: MethodSpec, plain: Any) -> Any:
    def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> Coroutine[Any, Any, Any]:
        exchange = connection.exchange
        if exchange is None:
            return opening(request, timeout, metadata)
        return call_unary(exchange, spec, request, timeout, metadata)

    async def opening(request: Any, timeout: float, metadata: Mapping[str, str]) -> Any:
        exchange, timeout = await _open(connection, spec, timeout)
        if exchange is None:
            return await plain(request, timeout=timeout, metadata=metadata)
        return await call_unary(exchange, spec, request, timeout, metadata)

    return call


def _stream(connection: MuxConnection, spec: MethodSpec, plain: Any) -> Any:
    async def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> AsyncIterator[Any]:
        exchange, timeout = await _open(connection, spec, timeout)
        if exchange is None:
            responses = plain(request, timeout=timeout, metadata=metadata)
        else:
            responses = call_stream(exchange, spec, request, timeout, metadata)
        try:
            async for response in responses:
                yield response
        finally:
            await responses.aclose()

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
