"""The network of a sandbox of bubblewrap: what it reaches, and how its servers are reached."""

from __future__ import annotations

import os
import socket

import aiohttp

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.relay import SandboxRelay, listen_in
from gymmesh_sandbox.backends.bubblewrap.tree import SandboxTree
from gymmesh_sandbox.backends.port_calls import call_over


class BoxNetwork:
    """What is served to a sandbox, in its own network, from this process."""

    def __init__(self, machine: Machine, spec: SandboxSpec) -> None:
        self._machine = machine
        self._spec = spec
        self._token = -1
        self._relay = SandboxRelay(spec.relay) if spec.relay else None

    async def open(self, token: int, tree: SandboxTree, workdir: str) -> None:
        """Serves a sandbox that has started, or has started again."""
        self._token = token
        if self._relay is not None:
            path = os.path.join(
                os.fsencode(workdir), os.fsencode(self._spec.network.relay.socket_path)
            )
            await self._relay.open(await self._machine.in_thread(listen_in, tree, path))

    async def close(self) -> None:
        """Ends all connections; harmless when called twice."""
        if self._relay is not None:
            await self._relay.close()

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        """See RunningSandbox. Raises SpawnError when the sandbox has ended."""
        connection = await self._socket()
        with connection:  # the connection made of it has a descriptor of its own
            return await call_over(_connector(connection), request, max_bytes)

    async def _socket(self) -> socket.socket:
        """A socket of the sandbox's network."""
        (made,) = await self._machine.starter.ask(
            "socket", box=self._token, family=int(socket.AF_INET), type=int(socket.SOCK_STREAM)
        )
        return socket.socket(fileno=made)


def _connector(connection: socket.socket) -> aiohttp.BaseConnector:
    """A connector that connects by this socket."""
    return aiohttp.TCPConnector(socket_factory=lambda _: connection.dup(), force_close=True)
