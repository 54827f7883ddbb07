"""A Unix socket on this machine whose connections go to a service of the mesh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError

_PIECE_BYTES: Final = 1 << 16
_CONNECT_S: Final = 10.0


class Relay:
    """Opened before its container, which mounts `path`; closed after it.

    Args:
        target: where a new connection is to go, HOST:PORT.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._folder = ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def path(self) -> str:
        """The socket's path on this machine."""
        return os.path.join(self._folder, "s")

    async def open(self) -> None:
        """Starts to listen."""
        self._folder = tempfile.mkdtemp(prefix="gymmesh-relay-")
        self._server = await asyncio.start_unix_server(self._connect, self.path)
        os.chmod(self.path, 0o666)  # the folder above it keeps others of this machine out

    async def close(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            host, _, port = self._target().rpartition(":")
            async with asyncio.timeout(_CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_carry(reader, far_writer))
                    group.create_task(_carry(far_reader, writer))
            finally:
                far_writer.close()
        except* (MeshError, OSError, ValueError):
            pass  # the sandbox finds its connection closed
        finally:
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
