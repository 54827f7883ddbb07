"""The connections to a gateway: bounded in number, and those that are of no use go first."""

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


class RolloutConnections:
    """The connections that showed the key of one rollout.

    At their limit a further one closes the oldest on which nothing is answered: it is idle, or its
    request does not arrive. So a program that opens many can still make its next call.
    """

    def __init__(self) -> None:
        self._open: dict[Any, None] = {}
        self._answering: set[Any] = set()

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return len(self._answering)

    def admit(self, connection: Any, most: int) -> bool:
        """Whether the rollout may use a connection, where it has `most` at a time."""
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
        """A request on a connection has arrived, and is answered meanwhile."""
        self._answering.add(connection)
        try:
            yield
        finally:
            self._answering.discard(connection)


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
