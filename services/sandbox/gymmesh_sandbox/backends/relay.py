"""A socket whose connections are connections to a service of the mesh."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.connections import ConnectionServer, carry

_CONNECT_S: Final = 10.0
#: Of one sandbox at a time; further ones are closed at once.
_MOST_CONNECTIONS: Final = 256
_LOGGER = logging.getLogger("gymmesh.sandbox")


class Relay:
    """Serves a listening socket. `target`: where a new connection goes, HOST:PORT."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._server = ConnectionServer(self._serve)

    async def open(self, listening: socket.socket) -> None:
        """Starts to serve; what was served before is closed."""
        await self._server.open(listening)

    async def close(self) -> None:
        """Ends all connections; harmless when called twice."""
        await self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server.connections > _MOST_CONNECTIONS:
            return
        try:
            host, _, port = self._target().rpartition(":")
        except MeshError as error:
            _LOGGER.warning("a connection of a sandbox could not be relayed: %s", error)
            return
        async with asyncio.timeout(_CONNECT_S):
            far = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            await carry((reader, writer), far)
        finally:
            far[1].close()
