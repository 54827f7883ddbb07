"""The network of a bubblewrap sandbox: what the sandbox reaches, and how its servers are
reached.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

import aiohttp

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.base import SandboxSpec
from gymmesh_sandbox.backends.bubblewrap.listening import listen_in
from gymmesh_sandbox.backends.bubblewrap.machine import Machine
from gymmesh_sandbox.backends.bubblewrap.tree import SandboxTree
from gymmesh_sandbox.backends.port_calls import call_over
from gymmesh_sandbox.backends.proxy import HostsProxy, proxy_environment
from gymmesh_sandbox.backends.relay import Relay

_BACKLOG: Final = 64


class BoxNetwork:
    """The servers that this process runs in a sandbox's own network."""

    def __init__(self, machine: Machine, spec: SandboxSpec) -> None:
        self._machine = machine
        self._spec = spec
        self._token = -1
        self._relay = spec.network.relay
        self._relays: list[Relay] = []
        self._hosts = tuple(spec.network.hosts.hosts)
        self._proxy = HostsProxy(self._hosts) if self._hosts else None
        self._proxy_port = 0

    async def open(self, token: int, tree: SandboxTree, workdir: str) -> None:
        """Starts the servers for a sandbox that has started, or has started again."""
        self._token = token
        await self._close_relays()
        if self._relay.socket_path:
            path = os.path.join(os.fsencode(workdir), os.fsencode(self._relay.socket_path))
            await self._relay_of(await self._machine.in_thread(listen_in, tree, path))
        if self._relay.port:
            await self._relay_of(await self._listening(self._relay.port))
        if self._proxy is not None:
            listening = await self._listening(0)
            await self._proxy.open(listening)
            self._proxy_port = listening.getsockname()[1]

    @property
    def env(self) -> Mapping[str, str]:
        """The network variables of the sandbox's processes."""
        return proxy_environment(self._proxy_port, self._hosts) if self._proxy else {}

    async def close(self) -> None:
        """Ends all connections; may be called twice."""
        await self._close_relays()
        if self._proxy is not None:
            await self._proxy.close()

    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        """See RunningSandbox. Raises SpawnError if the sandbox has ended."""
        connection = await self._socket()
        with connection:  # the connection made of it has a descriptor of its own
            return await call_over(_connector(connection), request, max_bytes)

    async def _relay_of(self, listening: socket.socket) -> None:
        """Serves a socket of the sandbox whose connections lead to the service of the mesh."""
        assert self._spec.relay is not None  # the service sets it for this kind of network
        relay = Relay(self._spec.relay)
        self._relays.append(relay)
        await relay.open(listening)

    async def _close_relays(self) -> None:
        relays, self._relays = self._relays, []
        for relay in relays:
            await relay.close()

    async def _listening(self, port: int) -> socket.socket:
        """A TCP socket that listens at the sandbox's loopback address; port 0: any free port."""
        listening = await self._socket()
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", port))
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
        return listening

    async def _socket(self) -> socket.socket:
        """A socket in the sandbox's network."""
        (made,) = await self._machine.starter.ask(
            "socket", box=self._token, family=int(socket.AF_INET), type=int(socket.SOCK_STREAM)
        )
        return socket.socket(fileno=made)


def _connector(connection: socket.socket) -> aiohttp.BaseConnector:
    """A connector that uses this socket."""
    return aiohttp.TCPConnector(socket_factory=lambda _: connection.dup(), force_close=True)
