"""The connections to a gateway, limited in number. At a limit, useless connections are closed
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from gymmesh_runtime.telemetry.instruments import GaugeChild

if TYPE_CHECKING:
    from aiohttp import web

#: The share of all connections that may have shown no key yet.
_STRANGERS: Final = 4


class GatewayConnections:
    """Creates the protocols for `loop.create_server`.

    A connection that has not sent a key is a *stranger*. If there is one too many, the oldest
    stranger is closed. So a program that only connects can't keep others out.

    Args:
        server: creates the connections, and closes idle ones.
        most: the maximum number of concurrent connections. If none of them is a stranger, further
            connections are closed at once.
        open_now: the metric that counts open connections.
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
        """A connection has sent the key of a rollout."""
        self._strangers.pop(connection, None)


class RolloutConnections:
    """The connections that sent the key of one rollout.

    If there is one too many, the oldest connection without an answer in progress is closed: it is
    idle, or its request does not arrive. So a program that opens many connections can still make
    its next call.
    """

    def __init__(self) -> None:
        self._open: dict[Any, None] = {}
        self._answering: set[Any] = set()

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return len(self._answering)

    def admit(self, connection: Any, most: int) -> bool:
        """Whether the rollout, which may have `most` concurrent connections, may use this
        connection.
        """
        self._open = {one: None for one in self._open if one.transport is not None}
        if connection in self._open:
            return True
        if len(self._open) >= most:
            useless = next((one for one in self._open if one not in self._answering), None)
            if useless is None:
                return False
            del self._open[useless]
            useless.force_close()
        self._open[connection] = None
        return True

    @contextmanager
    def answer(self, connection: Any) -> Iterator[None]:
        """A context for the answer to a request that has arrived on a connection."""
        self._answering.add(connection)
        try:
            yield
        finally:
            self._answering.discard(connection)


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
