"""A socket whose connections are forwarded to a service of the mesh."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.connections import ConnectionServer, carry

_CONNECT_S: Final = 10.0
#: Of one sandbox at a time.
_MOST_CONNECTIONS: Final = 256
# Ends the head of a request of HTTP; connections over HTTP/2 begin with it, too.
_HEAD_END: Final = b"\r\n\r\n"
_LOGGER = logging.getLogger("gymmesh.sandbox")


class Relay:
    """Serves a listening socket.

    If there is one connection too many, the relay closes the oldest connection that awaits nothing:
    one that has sent no complete head of a request, or that the service has ended. So a program
    that opens many connections can still make its next call. If there is no such connection, the
    new one is closed.

    Args:
        target: the target of a new connection, HOST:PORT. Raises MeshError if it is unknown.
        most_connections: the maximum number of concurrent connections.
    """

    def __init__(
        self, target: Callable[[], str], *, most_connections: int = _MOST_CONNECTIONS
    ) -> None:
        self._target = target
        self._most = most_connections
        self._server = ConnectionServer(self._serve)
        # By connection, the oldest first: whether an answer may be awaited on it.
        self._awaits: dict[asyncio.Task[None], bool] = {}

    async def open(self, listening: socket.socket) -> None:
        """Starts to serve; an earlier socket is closed."""
        await self._server.open(listening)

    async def close(self) -> None:
        """Ends all connections; may be called twice."""
        await self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not self._make_room():
            return
        self._awaits[task] = False
        try:
            await self._carry(task, reader, writer)
        except asyncio.CancelledError:
            if task in self._awaits:
                raise
            # It was closed for another one; asyncio reports a server's task that is cancelled.
        finally:
            self._awaits.pop(task, None)

    def _make_room(self) -> bool:
        """Whether there is room for one more connection; another connection may be closed for
        it.
        """
        if len(self._awaits) < self._most:
            return True
        useless = next((task for task, awaits in self._awaits.items() if not awaits), None)
        if useless is None:
            return False
        del self._awaits[useless]
        useless.cancel()
        return True

    async def _carry(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            host, _, port = self._target().rpartition(":")
        except MeshError as error:
            _LOGGER.warning("a connection of a sandbox could not be relayed: %s", error)
            return
        async with asyncio.timeout(_CONNECT_S):
            far = await asyncio.open_connection(host.strip("[]"), int(port))
        head: bytes | None = b""  # the end of what was sent of the first one; None: it is whole

        def sent(piece: bytes) -> None:
            nonlocal head
            if head is not None and task in self._awaits:
                head += piece
                self._awaits[task] = _HEAD_END in head
                head = None if self._awaits[task] else head[1 - len(_HEAD_END) :]

        def far_ended() -> None:
            if task in self._awaits:
                self._awaits[task] = False

        try:
            await carry((reader, writer), far, sent=sent, far_ended=far_ended)
        finally:
            far[1].close()
