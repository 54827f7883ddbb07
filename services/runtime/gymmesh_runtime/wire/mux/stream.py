"""The gRPC call under an exchange, as a stream of bytes both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import grpc

from gymmesh_runtime.errors import MeshError, from_rpc_error, unavailable
from gymmesh_runtime.wire.mux.frames import EXCHANGE
from gymmesh_runtime.wire.plain import cancelled_by_caller

T = TypeVar("T")


class ByteStream(Protocol):
    """A stream of batches to and from the peer. Failures raise MeshError."""

    async def read(self) -> bytes | None:
        """The next batch; None at the end of the stream."""

    async def write(self, data: bytes) -> None:
        """Sends a batch. Waits while the peer does not read."""

    async def end(self) -> None:
        """Ends this side of the stream."""


class GrpcStream:
    """Either end: a client's call or a server's context. Both have read and write."""

    def __init__(self, rpc: Any, peer: str, *, opener: bool) -> None:
        self._rpc = rpc
        self._peer = peer
        self._opener = opener

    async def read(self) -> bytes | None:
        data: Any = await self._typed(self._rpc.read())
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        """Sends a batch. Waits while the peer does not read. Raises MeshError."""
        await self._typed(self._rpc.write(data))

    async def end(self) -> None:
        """Ends this side of the stream. On a server, this is the end of its handler. Raises
        MeshError.
        """
        if self._opener:
            await self._typed(self._rpc.done_writing())

    async def _typed(self, operation: Awaitable[T]) -> T:
        try:
            return await operation
        except grpc.aio.AioRpcError as exc:
            raise from_rpc_error(exc, self._peer, EXCHANGE) from None
        except asyncio.CancelledError:
            if cancelled_by_caller():
                raise
            raise self._gone("the call was cancelled") from None
        except Exception as exc:  # the library has several for a call that is over
            raise self._gone(f"{type(exc).__name__}: {exc}") from None

    def _gone(self, detail: str) -> MeshError:
        return unavailable(detail, self._peer)
