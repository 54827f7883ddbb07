"""The proxy itself: it accepts a sandbox's requests, checks them, connects, and forwards.

The proxy resolves a name once and connects to the address that it checked, so a second answer of
the name server can't lead elsewhere. A connection carries one request, or one tunnel.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.processes import write_to
from gymmesh_sandbox.backends.connections import ConnectionServer, carry
from gymmesh_sandbox.backends.proxy.forwarding import NearConnection, forward
from gymmesh_sandbox.backends.proxy.hosts import check_listed, host_pattern, public
from gymmesh_sandbox.backends.proxy.targets import ProxyTarget, RefusedError, target_of

_HEAD_S: Final = 30.0
_RESOLVE_S: Final = 10.0
_CONNECT_S: Final = 10.0
_IDLE_S: Final = 300.0
_MOST_CONNECTIONS: Final = 256
_RESOLVERS: Final = 2
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HostsProxy:
    """Serves one sandbox. Opened with a listening socket in the sandbox's network."""

    def __init__(
        self,
        hosts: Sequence[sandbox_pb2.AllowedHost],
        *,
        idle_s: float = _IDLE_S,
        most_connections: int = _MOST_CONNECTIONS,
    ) -> None:
        self._hosts = tuple(hosts)
        self._idle_s = idle_s
        self._most = most_connections
        self._server = ConnectionServer(self._serve)
        # Threads of its own: names that are slow to resolve hold up nobody else.
        self._resolvers: ThreadPoolExecutor | None = None

    async def open(self, listening: socket.socket) -> None:
        """Starts to serve; an earlier socket is closed."""
        await self.close()
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, "sandbox-names")
        await self._server.open(listening)

    async def close(self) -> None:
        """Ends all connections; may be called twice."""
        await self._server.close()
        resolvers, self._resolvers = self._resolvers, None
        if resolvers is not None:
            resolvers.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near = NearConnection(reader, writer)
        try:
            if self._server.connections > self._most:
                raise RefusedError(
                    503,
                    f"This sandbox already has the maximum number of connections ({self._most}).",
                )
            async with asyncio.timeout(_HEAD_S):
                request = await near.request()
            headers = list(request.headers)
            target = target_of(request.method, request.target, headers)
            far = await self._connected(target)
        except RefusedError as refused:
            await near.refuse(refused)
            return
        try:
            if target.path:
                await forward(near, request, target, far, self._idle_s)
            else:
                write_to(far[1], await near.tunnel())
                await carry((reader, writer), far, self._idle_s)
            far[1].close()
        except BaseException:  # what is not sent yet is not waited for
            far[1].transport.abort()
            raise

    async def _connected(self, target: ProxyTarget) -> _Streams:
        private = check_listed(target, self._hosts)
        found = await self._resolved(target)
        permitted = [one for one in found if private or public(one[1][0])]
        if not permitted:
            line = f"{target.host} has a private address, which this sandbox may not reach."
            raise RefusedError(403, line)
        for family, address in permitted:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_S):
                    return await _connect(family, address)
        raise RefusedError(502, f"{target.host} does not answer at port {target.port}.")

    async def _resolved(
        self, target: ProxyTarget
    ) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
        def resolve() -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            return [(family, address) for family, _, _, _, address in found]

        try:
            async with asyncio.timeout(_RESOLVE_S):
                return await asyncio.get_running_loop().run_in_executor(self._resolvers, resolve)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            raise RefusedError(502, f"The name {target.host} has no address.") from None


async def _connect(family: socket.AddressFamily, address: tuple[Any, ...]) -> _Streams:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
        return await asyncio.open_connection(sock=made)
    except BaseException:
        made.close()
        raise


def proxy_environment(port: int, hosts: Sequence[sandbox_pb2.AllowedHost]) -> dict[str, str]:
    """The variables by which programs find the proxy.

    A program reaches its own servers, at the loopback address, without the proxy, unless that
    address is listed.
    """
    listed = {host_pattern(one.name) for one in hosts}
    direct = ",".join(name for name in _LOOPBACK if name not in listed)
    values = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), f"http://127.0.0.1:{port}")
    values["NO_PROXY"] = direct
    return values | {name.lower(): value for name, value in values.items()}
