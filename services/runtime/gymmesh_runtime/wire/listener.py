"""A gRPC server that listens again when a request has ended it.

grpcio decodes the path of each request as UTF-8, without handling errors. A path that is not UTF-8,
which any stranger can send, ends the whole server. The process lives on, but nobody can connect any
more. Seen with grpcio 1.85.1. Calls in flight end as with a broken connection; objects of the
services stay. `wait_for_termination` returns only when the last call has ended, which may take as
long as a rollout. So this module watches the task in which grpcio accepts requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import grpc

from gymmesh_runtime.wire.options import Options

_log = logging.getLogger("gymmesh.serve")

_AGAIN_S: Final = 0.2
# The name of grpcio's coroutine that takes requests.
_TAKES_REQUESTS: Final = "_server_main_loop"
# Servers that were ended. One that is collected while gRPC's core still shuts it down takes the
# whole process along, and nothing says when the core has finished.
_ENDED: Final[list[grpc.aio.Server]] = []


class Listener:
    """The methods and the address of a server, and its current grpc.aio.Server.

    The generated ``add_…_to_server`` functions accept it as a server.
    """

    def __init__(self, options: Options | None = None) -> None:
        self._options = options
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._server: grpc.aio.Server | None = None
        self._ended: asyncio.Future[Any] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Adds methods. Call it before the start."""
        self._handlers += handlers

    def add_registered_method_handlers(self, _service: str, _handlers: Any) -> None:
        """Adds the same methods by name."""

    async def start(self, place: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listens; returns the port. Raises RuntimeError when the address cannot be bound."""
        bound = await self._listen(place, credentials)
        again = f"{place.rpartition(':')[0]}:{bound}"
        self._keeper = asyncio.create_task(self._keep(again, credentials))
        return bound

    async def stop(self, grace: float | None) -> None:
        """Refuses new calls, and ends running calls after ``grace`` seconds."""
        # The keeper ends with the server: to cancel it would cancel what gRPC itself waits for.
        self._stopping = True
        if self._server is not None:
            await self._server.stop(grace)
        if self._keeper is not None:
            await asyncio.wait((self._keeper,), timeout=2 * _AGAIN_S)

    async def _listen(self, place: str, credentials: grpc.ServerCredentials | None) -> int:
        server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers(tuple(self._handlers))
        if credentials is None:
            bound = server.add_insecure_port(place)
        else:
            bound = server.add_secure_port(place, credentials)
        before = asyncio.all_tasks()
        await server.start()
        self._server = server
        self._ended = _taking_requests(asyncio.all_tasks() - before, server)
        return bound

    async def _keep(self, place: str, credentials: grpc.ServerCredentials | None) -> None:
        while not self._stopping:
            assert self._server is not None
            assert self._ended is not None
            await asyncio.wait((self._ended,))
            if not self._stopping:
                error = None if self._ended.cancelled() else self._ended.exception()
                why = f"with {type(error).__name__}" if error else "without an error"
                _log.error(
                    "the gRPC server at %s ended %s; this process starts the server again",
                    place,
                    why,
                )
                await _put_away(self._server)
                await self._listen_again(place, credentials)

    async def _listen_again(self, place: str, credentials: grpc.ServerCredentials | None) -> None:
        while not self._stopping:
            try:
                await self._listen(place, credentials)
            except RuntimeError:  # the port is not free yet
                await asyncio.sleep(_AGAIN_S)
                continue
            if self._stopping and self._server is not None:
                await self._server.stop(None)  # `stop` has stopped the one before
            return


def _taking_requests(
    started: set[asyncio.Task[Any]], server: grpc.aio.Server
) -> asyncio.Future[Any]:
    """Of the tasks that a server has started, the one that takes requests.

    Where there is none of that name, as in a grpcio that is made otherwise: the server's end.
    """
    for task in started:
        if getattr(task.get_coro(), "__name__", "") == _TAKES_REQUESTS:
            return task
    return asyncio.ensure_future(server.wait_for_termination())


async def _put_away(server: grpc.aio.Server) -> None:
    """Has the core close what is left of a server that was ended: its port, its connections."""
    _ENDED.append(server)
    try:
        async with asyncio.timeout(_AGAIN_S):
            await server.stop(0)
    except Exception as error:  # what ended it is raised once more
        _log.debug("the gRPC server was discarded: %s", error)
