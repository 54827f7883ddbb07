"""A container's connections to the mesh: a Unix socket that is mounted, and a port of its
network.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.relay import Relay

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET: Final = 0x40000000
_CAP_SYS_ADMIN: Final = 21
_BACKLOG: Final = 64


class ContainerRelay:
    """Opened before its container, which mounts `path`; joins the container when it runs; closed
    after it.

    Args:
        asked: the request's relay.
        target: returns the target of a new connection, HOST:PORT.
    """

    def __init__(self, asked: sandbox_pb2.Relay, target: Callable[[], str]) -> None:
        self._asked = asked
        self._folder = ""
        self._socket = Relay(target)
        self._port = Relay(target)

    @property
    def path(self) -> str:
        """The socket's path on this machine; empty: the request has none."""
        return os.path.join(self._folder, "s") if self._folder else ""

    async def open(self) -> None:
        """Starts to listen at the socket."""
        if not self._asked.socket_path:
            return
        self._folder = tempfile.mkdtemp(prefix="gymmesh-relay-")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self.path)
            os.chmod(self.path, 0o666)  # the folder above it keeps others of this machine out
            await self._socket.open(listening)
        except BaseException:
            listening.close()
            raise

    async def join(self, container_id: str, pid: int) -> None:
        """Starts to listen at the port, in the network of the container's first process.

        Raises OSError if that process is not on this machine, or if its network cannot be joined.
        """
        if self._asked.port:
            listening = await asyncio.to_thread(_listen_in, container_id, pid, self._asked.port)
            await self._port.open(listening)

    async def close(self) -> None:
        """Ends all connections."""
        await self._socket.close()
        await self._port.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def joins_networks() -> bool:
    """Whether this process may listen in the networks of other processes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (effective,) = [line for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def listen_in_network(pid: int, port: int) -> socket.socket:
    """A socket that listens at a port of 127.0.0.1 in the network of a process. Raises OSError."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def make() -> None:
        try:
            made.append(_joined(pid, port))
        except OSError as error:
            failed.append(error)

    # A network is joined by a thread for good, so that the thread ends with it.
    thread = threading.Thread(target=make, name="sandbox-network")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _listen_in(container_id: str, pid: int, port: int) -> socket.socket:
    """Checks that the process belongs to the container, as far as this machine can tell."""
    place = Path("/proc") / str(pid)
    seen = (place / "cgroup").read_text() + (place / "mountinfo").read_text()
    if container_id not in seen:
        raise OSError(f"process {pid} of this machine does not belong to the container")
    return listen_in_network(pid, port)


def _joined(pid: int, port: int) -> socket.socket:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.setns(network, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
    finally:
        os.close(network)
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
