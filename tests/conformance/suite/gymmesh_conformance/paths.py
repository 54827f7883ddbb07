"""How a call gets to the server under test.

A path is anything with `unary` and `stream`; failures come out of it as CallError, whatever lies
between. `AddressPath` is gRPC alone; `direct.PeerPath` takes the peers of gymmesh_runtime, so
that the same cases run over every way in which our own services can be called.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

import grpc
from google.protobuf.message import Message

from gymmesh_conformance.errors import from_rpc_error
from gymmesh_conformance.services import Rpc
from gymmesh_runtime.security import AUTHORIZATION, Credentials

_OPTIONS: Final[tuple[tuple[str, int | str], ...]] = (
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
    """gRPC to one address; used as an async context manager.

    ``credentials``: the certificates and the token to show; None: none. Raises MeshError
    (CREDENTIAL_INVALID) for a token that others on the way could read.
    """

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        self.address = address
        self._credentials = credentials or Credentials()
        self._channel = self.open_channel(_OPTIONS)
        self._own_metadata = self._credentials.metadata(address)
        self._metadata = self._own_metadata

    async def __aenter__(self) -> AddressPath:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def open_channel(self, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        """One more channel to it."""
        return self._credentials.open_channel(self.address, list(options))

    @property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """The metadata by which the suite's calls say who makes them."""
        return self._own_metadata

    async def ready(self, timeout: float) -> None:
        """Waits until the server accepts connections. Raises TimeoutError."""
        state = self._channel.get_state(try_to_connect=True)
        async with asyncio.timeout(timeout):
            while state is not grpc.ChannelConnectivity.READY:
                await self._channel.wait_for_state_change(state)
                state = self._channel.get_state(try_to_connect=True)

    def sending(self, metadata: Mapping[str, str]) -> AddressPath:
        """The same path, whose calls have this metadata.

        Where callers are known, `authorization` stays what they are known by: others' credentials
        are refused there, whatever the case is about.
        """
        other = copy.copy(self)
        known = self._own_metadata or self._credentials.encrypts
        given = ((key, text) for key, text in metadata.items() if not known or key != AUTHORIZATION)
        other._metadata = (*self._own_metadata, *given)
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
                response: bytes = await channel.unary_unary(method)(
                    data, timeout=timeout, metadata=self._metadata
                )
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
        call = channel.unary_stream(method)(data, timeout=timeout, metadata=self._metadata)
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
