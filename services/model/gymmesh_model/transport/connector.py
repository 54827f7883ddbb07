"""Connections that are used again only while nothing has come on them unasked."""

from __future__ import annotations

import asyncio
import select
from collections import defaultdict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import aiohttp
import msgspec

from gymmesh_model.transport.base import ConnectionLost

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest, ConnectionKey
    from aiohttp.connector import Connection

# So many answers back one may come once more, on the same connection.
_REMEMBERED: Final = 64
# Connections to one endpoint that are being made at a time.
_OPENING: Final = 128


class History:
    """The bodies that came on one connection of late, and whether more is waiting to be read."""

    __slots__ = ("_bodies", "_poll", "_socket")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._bodies: dict[int, None] = {}  # their hashes, the oldest first
        self._socket = transport.get_extra_info("socket")
        self._poll = select.poll()
        if self._socket is not None and self._socket.fileno() >= 0:
            self._poll.register(self._socket.fileno(), select.POLLIN)

    def add(self, body: int) -> bool:
        """Adds the hash of a body; whether one like it is among those that came of late."""
        bodies = self._bodies
        repeated = body in bodies
        bodies.pop(body, None)
        bodies[body] = None
        if len(bodies) > _REMEMBERED:
            del bodies[next(iter(bodies))]
        return repeated

    def is_readable(self) -> bool:
        """Whether something is waiting in the socket, or its other side has closed."""
        if self._socket is None or self._socket.fileno() < 0:
            return True
        return bool(self._poll.poll(0))


class Link(msgspec.Struct, eq=False):
    """The connection of one request, filled in once there is one.

    kept: whether it has been used before. history: what came on it. begun: whether the answer's
    head has come.
    """

    protocol: ResponseHandler | None = None
    transport: asyncio.Transport | None = None
    kept: bool = False
    history: History | None = None
    begun: bool = False

    def abort(self) -> None:
        """Closes it at once, without waiting for what is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    async def broken(self) -> None:
        """Closes it at once, and returns when its answer has failed."""
        self.abort()
        closed = self.protocol.closed if self.protocol is not None else None
        if closed is not None:
            await closed


current_link: Final[ContextVar[Link]] = ContextVar("current_link")
"""Of the request that the running task sends; aiohttp forgets it once the answer is whole."""


class CheckedConnector(aiohttp.TCPConnector):
    """aiohttp's pool of connections, less those on which something has come unasked.

    aiohttp looks whether a kept connection is open; it would read an earlier answer that came
    twice as the answer to the next request.

    connect_timeout: seconds for a connection, name and TLS included, once it is begun. options:
    of aiohttp.
    """

    def __init__(self, connect_timeout: float, **options: Any) -> None:
        super().__init__(**options)
        self._connect_timeout = connect_timeout
        # Thousands begun at once would overrun the endpoint's queue, and their own time-out.
        self._opening: defaultdict[ConnectionKey, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_OPENING)
        )
        self._histories: WeakKeyDictionary[ResponseHandler, History] = WeakKeyDictionary()

    async def connect(
        self, req: ClientRequest, traces: list[Any], timeout: ClientTimeout
    ) -> Connection:
        """See aiohttp. Raises ConnectionLost when a new connection has something to read."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                connection.close()
                raise ConnectionLost("connection closed by the endpoint")
            link = current_link.get()
            link.protocol, link.transport = protocol, transport
            history = self._histories.get(protocol)
            link.kept = history is not None
            if history is None:
                history = self._histories[protocol] = History(transport)
            link.history = history
            # A new one over TLS may have to read what belongs to its handshake.
            looks = link.kept or transport.get_extra_info("sslcontext") is None
            if not protocol.should_close and not (looks and history.is_readable()):
                return connection
            connection.close()
            if not link.kept:
                raise ConnectionLost("it sends or closes before it is asked")

    async def _create_connection(
        self, req: ClientRequest, traces: list[Any], timeout: ClientTimeout
    ) -> ResponseHandler:
        async with self._opening[req.connection_key], asyncio.timeout(self._connect_timeout):
            return await super()._create_connection(req, traces, timeout)
