"""Peers of gymmesh_runtime as paths, and scripted services as its servicers.

The one file of the suites that knows the runtime: a server in another language needs none of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from gymmesh_conformance.errors import CallError
from gymmesh_conformance.scripted import Room
from gymmesh_conformance.services import Rpc, methods
from gymmesh_runtime.errors import MeshError, from_status, to_status
from gymmesh_runtime.peers import PeerDirectory


class PeerPath:
    """Calls through peers of the runtime, whatever kind they are.

    `peers` holds them by short service name, such as {"resource": …, "verify": …}.
    """

    def __init__(self, peers: Mapping[str, Any]) -> None:
        self._peers = peers

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        """See paths.Path."""
        call = getattr(self._peers[rpc.service], rpc.method.name)
        try:
            response: Message = await call(request, timeout=timeout)
        except MeshError as exc:
            raise CallError(exc.code, exc.message, to_status(exc)) from None
        return response

    async def stream(
        self, rpc: Rpc, request: Message | AsyncIterator[Message], timeout: float
    ) -> AsyncIterator[Message]:
        """See paths.Path."""
        call = getattr(self._peers[rpc.service], rpc.method.name)
        argument: Any = request
        if rpc.streams_up and isinstance(request, Message):
            argument = _once(request)
        try:
            async with aclosing(call(argument, timeout=timeout)) as responses:
                async for response in responses:
                    yield response
        except MeshError as exc:
            raise CallError(exc.code, exc.message, to_status(exc)) from None


async def _once(request: Message) -> AsyncIterator[Message]:
    yield request


def add_rooms(directory: PeerDirectory, rooms: list[Room]) -> None:
    """Puts scripted services into a directory, to be called directly."""
    for room in rooms:
        servicers = {name: _Servicer(name, one) for name, one in room.servicers.items()}
        directory.add_direct(room.instance("direct"), servicers)


class _Servicer:
    """A scripted servicer whose errors are the runtime's."""

    def __init__(self, service: str, servicer: object) -> None:
        for rpc in methods(service):
            method = getattr(servicer, rpc.method.name, None)
            if method is not None:
                wrap = _stream if rpc.streams_down else _unary
                setattr(self, rpc.method.name, wrap(method))


def _unary(method: Any) -> Any:
    async def serve(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except CallError as exc:
            raise _mesh_error(exc) from None

    return serve


def _stream(method: Any) -> Any:
    async def serve(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in method(request, context):
                yield response
        except CallError as exc:
            raise _mesh_error(exc) from None

    return serve


def _mesh_error(error: CallError) -> MeshError:
    assert error.status is not None
    return from_status(error.status)
