"""Forwards the calls of one gRPC service to the instance that offered it, without reading them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, aclosing
from typing import Any, Protocol

from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import MethodSpec, in_bytes, methods_of
from gymmesh_runtime.serving import RELAYED_IDENTITY
from gymmesh_runtime.wire import Exchange, call_stream, call_unary


class Connected(Protocol):
    """An instance, as the forwarder sees it."""

    def counted(self) -> AbstractContextManager[None]:
        """Counts a call while the context is open. Raises QUEUE_FULL if there are too many
        calls.
        """

    async def connection(self, size: int) -> Exchange:
        """A connection with room for a request of ``size`` bytes. Raises MeshError."""


class Forwarder:
    """Has the methods of one gRPC service. Each method calls the instance.

    Methods with a request stream are missing, because the mux does not carry them.
    """

    def __init__(self, instance: Connected, service: str) -> None:
        for name, spec in methods_of(service).items():
            if not spec.client_streaming:
                make = _stream if spec.server_streaming else _unary
                setattr(self, name, make(instance, in_bytes(spec)))


def _unary(instance: Connected, spec: MethodSpec) -> Any:
    async def call(request: bytes, context: CallContext) -> bytes:
        with instance.counted():
            exchange = await instance.connection(len(request))
            calling = call_unary(
                exchange, spec, request, context.time_remaining(), _metadata_of(context)
            )
            del request  # not to be kept for as long as the call takes
            response: bytes = await calling
        return response

    return call


def _stream(instance: Connected, spec: MethodSpec) -> Any:
    async def call(request: bytes, context: CallContext) -> AsyncIterator[bytes]:
        with instance.counted():
            exchange = await instance.connection(len(request))
            responses: Any = call_stream(
                exchange, spec, request, context.time_remaining(), _metadata_of(context)
            )
            del request
            async with aclosing(responses):
                async for response in responses:
                    yield response

    return call


def _metadata_of(context: CallContext) -> Mapping[str, str]:
    """The caller's metadata, and who it is: the instance trusts what its relay says of that."""
    if not context.identity and RELAYED_IDENTITY not in context.metadata:
        return context.metadata
    return {**context.metadata, RELAYED_IDENTITY: context.identity}
