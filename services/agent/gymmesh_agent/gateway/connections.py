"""The connections to a gateway: bounded in number, and those that show no key go first."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from gymmesh_runtime.telemetry.instruments import GaugeChild

#: The share of all connections that may have shown no key yet.
_STRANGERS: Final = 4


class GatewayConnections:
    """Makes the protocols for `loop.create_server`.

    A connection that has shown no key is a stranger. One too many closes the oldest stranger, so
    that a program that only connects keeps no other out.

    Args:
        server: makes the connections; it closes those that are idle.
        most: connections at a time; with none of them a stranger, further ones are closed at once.
        open_now: counts them.
    """

    def __init__(self, server: web.Server, most: int, open_now: GaugeChild) -> None:
        self._server = server
        self._most = most
        self._open_now = open_now
        self._strangers: dict[Any, None] = {}

    def __call__(self) -> asyncio.Protocol:
        self._strangers = {one: None for one in self._strangers if one.transport is not None}
        here = len(self._server.connections)
        self._open_now.set(here)
        if here >= self._most or len(self._strangers) > self._most // _STRANGERS:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return _TurnedAway()
            del self._strangers[oldest]
            oldest.force_close()
        connection = self._server()
        # It has its transport from the loop's next turn on.
        asyncio.get_running_loop().call_soon(self._strangers.setdefault, connection)
        return connection

    def known(self, connection: Any) -> None:
        """A connection has shown the key of a rollout."""
        self._strangers.pop(connection, None)


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
