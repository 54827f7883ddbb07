"""How a call gets to the server under test.

A path is anything with `unary` and `stream`; failures come out of it as CallError, whatever lies
between. `AddressPath` needs gRPC alone; `direct.PeerPath` takes the peers of gymmesh_runtime, so
that the same cases run over every way in which our own services can be called.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from gymmesh_conformance.errors import from_rpc_error
from gymmesh_conformance.services import Rpc

_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.enable_retries", 0),
)


class Path(Protocol):
    """A way to call RPCs. Timeouts are in seconds."""

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        """Calls an RPC with one response. Raises CallError."""

    def stream(
        self, rpc: Rpc, request: Message | AsyncIterator[Message], timeout: float
    ) -> AsyncIterator[Message]:
        """Calls an RPC with a stream of responses. Closing the iterator cancels the call.

        Where the caller streams too, `request` is the one message sent, or the iterator of all.
        Raises CallError.
        """


class AddressPath:
    """Plain gRPC to one address; used as an async context manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._metadata: tuple[tuple[str, str], ...] = ()

    async def __aenter__(self) -> AddressPath:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def ready(self, timeout: float) -> None:
        """Waits until the server accepts connections. Raises TimeoutError."""
        state = self._channel.get_state(try_to_connect=True)
        async with asyncio.timeout(timeout):
            while state is not grpc.ChannelConnectivity.READY:
                await self._channel.wait_for_state_change(state)
                state = self._channel.get_state(try_to_connect=True)

    def sending(self, metadata: Mapping[str, str]) -> AddressPath:
        """The same path, whose calls have this metadata."""
        other = copy.copy(self)
        other._metadata = tuple(metadata.items())
        return other

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        """See Path."""
        call = self._channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request_class.SerializeToString,
            response_deserializer=rpc.response_class.FromString,
        )
        try:
            response: Message = await call(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as exc:
            raise from_rpc_error(exc) from None
        return response

    async def raw(self, method: str, data: bytes, timeout: float, *, streams: bool) -> bytes:
        """Sends bytes as they are; gives the first response's. Raises CallError."""
        channel: Any = self._channel  # without serializers it takes and gives bytes
        try:
            if not streams:
                response: bytes = await channel.unary_unary(method)(data, timeout=timeout)
                return response
            async with aclosing(self.raw_stream(method, data, timeout)) as responses:
                async for response in responses:
                    return response
        except grpc.aio.AioRpcError as exc:
            raise from_rpc_error(exc) from None
        return b""

    async def raw_stream(self, method: str, data: bytes, timeout: float) -> AsyncGenerator[bytes]:
        """Sends bytes as they are; gives all responses'. Raises CallError."""
        channel: Any = self._channel
        call = channel.unary_stream(method)(data, timeout=timeout)
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as exc:
            raise from_rpc_error(exc) from None
        finally:
            call.cancel()

    async def stream(
        self, rpc: Rpc, request: Message | AsyncIterator[Message], timeout: float
    ) -> AsyncIterator[Message]:
        """See Path."""
        open_: Any = self._channel.stream_stream if rpc.streams_up else self._channel.unary_stream
        call = open_(
            rpc.path,
            request_serializer=rpc.request_class.SerializeToString,
            response_deserializer=rpc.response_class.FromString,
        )
        only = rpc.streams_up and isinstance(request, Message)
        given = iter((request,)) if only else request
        running = call(given, timeout=timeout, metadata=self._metadata)
        try:
            async for response in running:
                yield response
        except grpc.aio.AioRpcError as exc:
            raise from_rpc_error(exc) from None
        finally:
            running.cancel()  # leaving early would otherwise park the handler
