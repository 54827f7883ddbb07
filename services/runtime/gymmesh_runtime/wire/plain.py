"""The peer for a service in another process: plain gRPC, one RPC for each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc

from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.contract import MethodSpec, methods_of
from gymmesh_runtime.errors import bounded_timeout, connection_closed
from gymmesh_runtime.sizes import PackedRequests, packed_request
from gymmesh_runtime.wire.channels import PeerChannel


class PlainPeer:
    """Has the methods of one gRPC service at one address."""

    def __init__(self, channel: PeerChannel, service: str) -> None:
        for name, spec in methods_of(service).items():
            if spec.server_streaming:
                setattr(self, name, _stream(channel, spec))
            else:
                setattr(self, name, _unary(channel, spec))


def _unary(channel: PeerChannel, spec: MethodSpec) -> Any:
    async def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> Any:
        timeout = bounded_timeout(timeout, spec.full_name)  # gRPC takes zero for no deadline
        carried = (*metadata.items(), *channel.metadata())
        held = channel.enter()
        try:
            data = packed_request(spec, request)
            data = await held.call(spec)(data, timeout=timeout, metadata=carried)
            channel.reached()
            return spec.response_of(data, channel.address)
        except grpc.aio.AioRpcError as exc:
            raise await channel.failure(exc, spec.full_name) from None
        except asyncio.CancelledError:
            if cancelled_by_caller():
                raise
            raise connection_closed(channel.address) from None
        finally:
            channel.leave(held)

    return call


def _stream(channel: PeerChannel, spec: MethodSpec) -> Any:
    async def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = NO_METADATA
    ) -> AsyncIterator[Any]:
        timeout = bounded_timeout(timeout, spec.full_name)
        carried = (*metadata.items(), *channel.metadata())
        held = channel.enter()
        rpc: Any = None
        sent: PackedRequests | None = None
        try:
            if spec.client_streaming:
                request = sent = PackedRequests(request, spec)
            else:
                request = packed_request(spec, request)
            rpc = held.call(spec)(request, timeout=timeout, metadata=carried)
            if sent is not None:
                sent.give_up = rpc.cancel
            async for data in rpc:
                channel.reached()
                yield spec.response_of(data, channel.address)
        except grpc.aio.AioRpcError as exc:
            raise await channel.failure(exc, spec.full_name) from None
        except asyncio.CancelledError:
            if cancelled_by_caller():
                raise
            if sent is not None and sent.error is not None:
                raise sent.error from None
            raise connection_closed(channel.address) from None
        finally:
            # Leaving the loop early would otherwise park the handler for ever.
            if rpc is not None:
                rpc.cancel()
            channel.leave(held)

    return call


def cancelled_by_caller() -> bool:
    """Whether somebody cancelled this task.

    A channel that is closed during a call also raises CancelledError, in a task that nobody
    cancelled.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
