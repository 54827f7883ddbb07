"""A Unix socket in a sandbox, each connection of which is one to a service of the mesh."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.bubblewrap.tree import Owner, SandboxTree, path_invalid

_PIECE_BYTES: Final = 1 << 16
_CONNECT_S: Final = 10.0
_BACKLOG: Final = 64
_NAME_BYTES: Final = 64
_ROOT: Final = Owner(0, 0)
_LOGGER = logging.getLogger("gymmesh.sandbox")


class SandboxRelay:
    """Serves the socket. `target` says where a new connection goes, HOST:PORT."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, listening: socket.socket) -> None:
        """Starts to serve; what was served before is closed."""
        await self.close()
        self._server = await asyncio.start_unix_server(self._connected, sock=listening)

    async def close(self) -> None:
        """Ends all connections; harmless when called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await self._carry(reader, writer)
        except MeshError as error:
            _LOGGER.warning("a connection of a sandbox could not be relayed: %s", error)
        except (OSError, TimeoutError, ValueError):
            pass  # the sandbox sees its connection end
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target().rpartition(":")
        async with asyncio.timeout(_CONNECT_S):
            far = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, far[1]))
                both.create_task(_copy(far[0], writer))
        except* OSError:
            pass  # one side is gone
        finally:
            far[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carries one direction to its end, and ends it on the other side."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def listen_in(tree: SandboxTree, path: bytes) -> socket.socket:
    """A Unix socket that listens at a path of a sandbox, for all its users.

    A socket that is there, as in a fork, is replaced. Raises SANDBOX_PATH_INVALID.
    """
    folder, _, name = path.rpartition(b"/")
    if not 0 < len(name) <= _NAME_BYTES or name in (b".", b".."):
        raise path_invalid(path, f"a socket's name has 1 to {_NAME_BYTES} bytes")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tree.folder(folder or b"/", _ROOT) as parent:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            listening.bind(b"/proc/self/fd/%d/%b" % (parent, name))
            os.chmod(name, 0o666, dir_fd=parent)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise tree.failed(error, path) from None
    return listening
