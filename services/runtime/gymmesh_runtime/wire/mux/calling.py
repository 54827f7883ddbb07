"""The calls that this side of a stream makes; each ends with a result or a MeshError."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from time import monotonic
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError, bounded_timeout, deadline_passed
from gymmesh_runtime.sizes import packed_request
from gymmesh_runtime.wire.mux import frames
from gymmesh_runtime.wire.mux.calls import OutgoingCall
from gymmesh_runtime.wire.mux.exchange import Exchange
from gymmesh_runtime.wire.mux.outbox import OutboxClosed

#: Messages of a stream that may be under way or wait for their reader.
WINDOW: Final = 64


async def call_unary(
    exchange: Exchange, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
) -> Any:
    """Makes a call with one response. ``timeout`` in seconds."""
    if exchange.sender.full:
        timeout = await _wait_for_room(exchange, spec, timeout)
    call = OutgoingCall()
    timer = _begin(exchange, call, spec, request, timeout, metadata)
    del request  # not to be kept for as long as the call takes
    try:
        while not call.over:
            call.waiter = asyncio.get_running_loop().create_future()
            await call.waiter
    finally:
        _end(exchange, call, timer)
    if call.error is not None:
        raise call.error
    assert call.response is not None  # the table made sure of it
    return spec.response_of(call.response, exchange.peer)


async def call_stream(
    exchange: Exchange, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
) -> AsyncGenerator[Any, None]:
    """Makes a call with a response stream. ``timeout`` in seconds, for all of it."""
    if exchange.sender.full:
        timeout = await _wait_for_room(exchange, spec, timeout)
    call = OutgoingCall(credit=WINDOW)
    timer = _begin(exchange, call, spec, request, timeout, metadata)
    del request
    read = 0
    try:
        while True:
            while not call.messages:
                if call.error is not None:
                    raise call.error
                if call.over:
                    return
                call.waiter = asyncio.get_running_loop().create_future()
                await call.waiter
            read += 1
            if read == WINDOW // 2:
                if exchange.table.grant(call.number, read):
                    credit = frames.Credit(call.number, read)
                    exchange.sender.send([credit])
                read = 0
            yield spec.response_of(call.messages.pop(0), exchange.peer)
    finally:
        _end(exchange, call, timer)


async def _wait_for_room(exchange: Exchange, spec: MethodSpec, timeout: float) -> float:
    """Waits for room to send; returns what is left of the timeout, in seconds."""
    deadline = monotonic() + bounded_timeout(timeout, spec.full_name)
    try:
        async with asyncio.timeout(deadline - monotonic()):
            await exchange.sender.room()
    except OutboxClosed:
        raise exchange.error() from None
    except TimeoutError:
        raise deadline_passed(spec.full_name) from None
    return max(deadline - monotonic(), 0.001)


def _begin(
    exchange: Exchange,
    call: OutgoingCall,
    spec: MethodSpec,
    request: Any,
    timeout: float,
    metadata: Mapping[str, str],
) -> asyncio.TimerHandle:
    """Sends what begins a call; returns the timer of its deadline."""
    timeout = bounded_timeout(timeout, spec.full_name)
    payload = packed_request(spec, request)
    if not exchange.usable:
        raise exchange.error()
    if metadata:
        _check(metadata)
    exchange.table.open(call)
    timeout_ms = math.ceil(timeout * 1000)
    begin = frames.begin(
        call.number, spec.full_name, timeout_ms, metadata, payload, call.credit or 0
    )
    exchange.sender.send(begin)
    return asyncio.get_running_loop().call_later(timeout, _expire, exchange, call, spec.full_name)


def _end(exchange: Exchange, call: OutgoingCall, timer: asyncio.TimerHandle) -> None:
    """Leaves a call, which is cancelled if it is not over."""
    timer.cancel()
    exchange.cancel(call)


def _expire(exchange: Exchange, call: OutgoingCall, method: str) -> None:
    """A call's time is up."""
    if exchange.cancel(call):
        call.messages.clear()
        call.finish(deadline_passed(method))


def _check(metadata: Mapping[str, str]) -> None:
    """Raises FIELD_INVALID for what no frame can carry: it would spoil a whole batch."""
    for key, value in metadata.items():
        try:
            key.encode()
            value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the metadata {key!r} can't be encoded as UTF-8",
                metadata={"field": "metadata"},
            ) from None
