"""aiohttp's pool of connections, without connections that received unrequested data."""

from __future__ import annotations

import asyncio
import select
from collections import defaultdict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import aiohttp
import msgspec

from gymmesh_model.transport.base import ConnectionLost

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection

# Connections to one endpoint that are created at a time. Thousands begun at once would overrun the
# endpoint's queue, and their own time-out.
_CONNECTING: Final = 128


class Link(msgspec.Struct, eq=False):
    """The connection of one request, set once there is one.

    kept: whether an earlier request has used it.
    """

    protocol: ResponseHandler | None = None
    transport: asyncio.Transport | None = None
    kept: bool = False

    def abort(self) -> None:
        """Closes it at once, without waiting for what is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    async def broken(self) -> None:
        """Closes it at once, and returns when its answer has failed."""
        self.abort()
        if self.protocol is not None and self.protocol.closed is not None:
            await self.protocol.closed


current_link: Final[ContextVar[Link]] = ContextVar("current_link")
"""The link of the request that the running task sends."""


class _NoneKept(Exception):
    """A connection would have to be created."""


class _KeptOnly:
    """Takes the place of aiohttp's traces, and ends a search where no connection is kept."""

    async def send_connection_reuseconn(self) -> None:
        """See aiohttp.tracing.Trace."""

    async def send_connection_create_start(self) -> None:
        """See aiohttp.tracing.Trace. Raises _NoneKept."""
        raise _NoneKept


_KEPT_ONLY: Final[list[Any]] = [_KeptOnly()]


class CheckedConnector(aiohttp.TCPConnector):
    """Uses no connection on which something waits to be read before the request is sent.

    aiohttp looks whether a kept connection is open; it would read an earlier answer that came twice
    as the answer to the next request. options: of aiohttp.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._places: defaultdict[ConnectionKey, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_CONNECTING)
        )
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self, req: ClientRequest, traces: list[Any], timeout: ClientTimeout
    ) -> Connection:
        """See aiohttp. Raises ConnectionLost when a new connection has something to read."""
        link = current_link.get()
        while True:
            try:
                connection = await super().connect(req, _KEPT_ONLY, timeout)
            except _NoneKept:
                async with self._places[req.connection_key]:
                    connection = await super().connect(req, traces, timeout)
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                connection.close()
                raise ConnectionLost("connection closed by the endpoint")
            link.protocol, link.transport = protocol, transport
            link.kept = protocol in self._used
            self._used.add(protocol)
            # A new one over TLS may have to read what belongs to its handshake.
            looks = link.kept or transport.get_extra_info("sslcontext") is None
            if not protocol.should_close and not (looks and _is_readable(transport)):
                return connection
            connection.close()
            if not link.kept:
                raise ConnectionLost(
                    "the endpoint sent data or closed the connection before a request"
                )


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether something waits in the socket, or its other side has closed."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))
