"""Calls of gRPC methods with bytes for messages, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from tests.fuzz.judge import Answer

DETAILS: Final = "grpc-status-details-bin"
Metadata = Sequence[tuple[str, str | bytes]]
#: Longer than anything here takes by right on a busy machine.
PATIENT_S: Final = 90.0
_ENDED: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.BaseError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
)
_OWN_LIBRARY: Final = "Internal error from Core"
_MOST_MESSAGES: Final = 50


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be sent. `linger_s`: how long to wait for one more message of a stream that need
    not end; None: it has to. `own`: of our contract.
    """

    method: str  # package.Service/Method
    requests: Sequence[bytes]
    metadata: Metadata = ()
    timeout_s: float = PATIENT_S
    client_streaming: bool = False
    server_streaming: bool = False
    linger_s: float | None = None
    own: bool = True


async def answer_to(channel: Any, call: Call) -> Answer:
    """Makes a call, and waits for its end for as long as it says."""
    path = f"/{call.method}"
    more = {"metadata": list(call.metadata), "timeout": call.timeout_s}
    sent: Any = call.requests[0] if call.requests else b""
    if call.client_streaming:
        rpc = channel.stream_stream(path)(**more)
        return await _talked(rpc, call)
    if call.server_streaming:
        rpc = channel.unary_stream(path)(sent, **more)
        return await _talked(rpc, call)
    rpc = channel.unary_unary(path)(sent, **more)
    try:
        messages = [await rpc]
    except grpc.aio.AioRpcError:
        messages = []
    return await _answered(rpc, call, messages)


async def ask(
    channel: Any, method: str, request: Any, response: Any, metadata: Metadata = ()
) -> Any:
    """A good call's response; raises AioRpcError."""
    rpc = channel.unary_unary(f"/{method}")
    data = await rpc(request.SerializeToString(), timeout=PATIENT_S, metadata=list(metadata))
    return response.FromString(data)


async def _talked(rpc: Any, call: Call) -> Answer:
    messages: list[bytes] = []
    try:
        if call.client_streaming:
            for one in call.requests:
                await rpc.write(one)
            await rpc.done_writing()
        while len(messages) < _MOST_MESSAGES:
            async with asyncio.timeout(call.linger_s):
                data = await rpc.read()
            if data is grpc.aio.EOF:
                break
            messages.append(data)
        else:
            rpc.cancel()
    except TimeoutError:
        rpc.cancel()
    except _ENDED:  # what the library raises on a stream that has ended
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    return await _answered(rpc, call, messages)


async def _answered(rpc: Any, call: Call, messages: Sequence[bytes]) -> Answer:
    code = await rpc.code()
    trailers = await rpc.trailing_metadata() or ()
    details = next((value for key, value in trailers if key == DETAILS), b"")
    if await rpc.details() == _OWN_LIBRARY:  # which could not write to a stream that had ended
        return Answer(call.method, "CANCELLED", messages=messages)
    return Answer(
        call.method,
        code.name,
        await rpc.details() or "",
        details if isinstance(details, bytes) else details.encode(),
        messages,
        call.own,
        call.timeout_s >= PATIENT_S,
    )
