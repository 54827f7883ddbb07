"""A Unix socket on this machine whose connections go to a service of the mesh."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable

from gymmesh_sandbox.backends.relay import Relay


class MountedRelay:
    """Opened before its container, which mounts `path`; closed after it.

    Args:
        target: where a new connection is to go, HOST:PORT.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self._folder = ""
        self._relay = Relay(target)

    @property
    def path(self) -> str:
        """The socket's path on this machine."""
        return os.path.join(self._folder, "s")

    async def open(self) -> None:
        """Starts to listen."""
        self._folder = tempfile.mkdtemp(prefix="gymmesh-relay-")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self.path)
            os.chmod(self.path, 0o666)  # the folder above it keeps others of this machine out
            await self._relay.open(listening)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        """Ends all connections."""
        await self._relay.close()
        shutil.rmtree(self._folder, ignore_errors=True)
