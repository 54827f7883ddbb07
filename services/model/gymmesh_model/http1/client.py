"""Connections to endpoints, kept for the next request, and requests over them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_model.http1.answer import Answer, Bounds, PlainAnswers
from gymmesh_model.http1.connection import Connection, Streamed
from gymmesh_model.http1.errors import (
    AnswerRepeated,
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
)
from gymmesh_model.http1.parser import MAX_HEAD
from gymmesh_model.http1.target import Target
from gymmesh_model.http1.turnstile import Turnstile

MAX_BODY: Final = 64 * 1024 * 1024
_Origin = tuple[str, str, int]
# Connections to one origin that are being made at a time.
_OPENING: Final = 128
# Answers of one origin that are remembered as ones that it gives to several requests.
_MOST_CONSTANT: Final = 4096


# What is sent: bytes, or who makes them, each time they are sent. While an answer is waited for,
# which may take minutes, the latter need not be kept in memory.
Body = bytes | Callable[[], bytes]


class _Pool:
    """The connections to one origin."""

    __slots__ = (
        "answers", "client", "constant", "idle", "open", "opening", "plain", "time", "waiting",
    )  # fmt: skip

    def __init__(
        self, client: Client, answers: Turnstile[Answer], time: Callable[[], float]
    ) -> None:
        self.client = client
        self.answers = answers
        self.plain = PlainAnswers()
        self.constant: set[int] = set()
        self.time = time
        # The one used last is used next, so that those not needed grow old.
        self.idle: list[Connection] = []
        self.open: set[Connection] = set()
        # Thousands that come about in one turn of the loop would hold up all else for its length.
        self.opening = asyncio.Semaphore(_OPENING)
        self.waiting: deque[asyncio.Future[Connection | None]] = deque()

    def free(self, connection: Connection) -> None:
        """Takes a connection that can be used again."""
        while self.waiting:
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self.idle.append(connection)
        connection.idle_since = self.time()
        if self.client.sweep is None:
            self.client.sweep_later()

    def repeats(self, checksum: int) -> None:
        """Remembers a body that came again on a connection of its own: it is a true answer."""
        if len(self.constant) >= _MOST_CONSTANT:
            self.constant.clear()
        self.constant.add(checksum)

    def forget(self, connection: Connection) -> None:
        """Takes leave of a connection that is closed."""
        self.open.discard(connection)
        if connection.idle_since and connection in self.idle:
            self.idle.remove(connection)
        _wake(self, None)


class Client:
    """Requests over kept connections; made and used in one event loop.

    limit: connections to one origin at a time; more requests wait in line. connect_timeout:
    seconds for a connection, name and TLS included. idle_timeout: seconds after which a
    connection that nobody used is closed. max_body, max_head: bytes of an answer. tls: the
    context for https; by default one that checks certificate and name. alike: what answers
    that lead to the same step have in common, see Turnstile.

    There is no other time-out: cancel the call, which closes its connection.
    """

    def __init__(
        self,
        *,
        limit: int = 100,
        connect_timeout: float = 5.0,
        idle_timeout: float = 15.0,
        max_body: int = MAX_BODY,
        max_head: int = MAX_HEAD,
        tls: ssl.SSLContext | None = None,
        alike: Callable[[Answer], Any] = lambda answer: len(answer.body),
    ) -> None:
        self._limit = limit
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._bounds = Bounds(max_body, max_head)
        self._bodiless = Bounds(max_body, max_head, bodiless=True)
        self._tls = tls
        self._pools: dict[_Origin, _Pool] = {}
        self._loop = asyncio.get_running_loop()
        self._answers: Turnstile[Answer] = Turnstile(self._loop, self._in_flight, alike)
        # Closes what is idle for too long; there is one while there are idle connections.
        self.sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(
        self,
        target: Target,
        body: Body = b"",
        headers: Mapping[str, str] | None = None,
        *,
        resend: bool = False,
    ) -> Answer:
        """Sends a request and gives its whole answer, whatever its status. Raises Http1Error.

        resend: whether it is safe for the endpoint to get the request twice. A kept connection
        may be closed by the other side just when it is used again; then the request goes out
        once more, on a new connection, if not one byte of an answer had come. It also does when
        a kept connection brings the bytes of an earlier answer: only a new one can tell whether
        these are the answer, or a copy of another. Without `resend` that is AnswerRepeated.
        """
        connection = self._kept(target) or await self._acquire(target)
        kept = connection.used
        repeated: int | None = None
        bounds = self._bodiless if target.method == "HEAD" else self._bounds
        while True:
            sent = body if isinstance(body, bytes) else body()
            waiter: asyncio.Future[Answer] = self._loop.create_future()
            connection.ask(waiter, target.head(len(sent), headers), sent, bounds)
            del sent  # the answer may be long in coming
            try:
                answer = await waiter
            except asyncio.CancelledError:
                connection.leave(waiter)
                raise
            except ConnectionLost as error:
                if not (resend and kept and error.untouched):
                    raise
            except AnswerRepeated as error:
                if not resend:
                    raise
                repeated = error.checksum
            else:
                if repeated is not None and zlib.crc32(answer.body) == repeated:
                    self._pools[target.origin].repeats(repeated)
                return answer
            connection, kept = await self._acquire(target, fresh=True), False

    async def stream(
        self, target: Target, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Streamed:
        """As `ask`, but gives the answer as soon as its head has come.

        Always on a new connection, which is closed afterwards: whether what a kept one brings is
        a copy of an earlier answer shows only at its end, when it has been handed on.
        """
        head = target.head(len(body), headers)
        connection = await self._acquire(target, fresh=True)
        bounds = self._bodiless if target.method == "HEAD" else self._bounds
        return await connection.stream(head, body, bounds)

    @property
    def connections(self) -> int:
        """How many are open or being opened."""
        return sum(len(pool.open) for pool in self._pools.values())

    def _in_flight(self) -> int:
        count = 0
        for pool in self._pools.values():
            count += len(pool.open) - len(pool.idle)
        return count

    async def close(self) -> None:
        """Closes all connections at once; requests in flight fail with ConnectionLost."""
        self._closed = True
        if self.sweep is not None:
            self.sweep.cancel()
        for pool in self._pools.values():
            while pool.waiting:
                _wake(pool, None)
            for connection in list(pool.open):
                connection.abort()
        # The event loop tells the transports in its next turn.
        await asyncio.sleep(0)

    def sweep_later(self) -> None:
        """For the pools: there are idle connections from now on."""
        if not self._closed:
            self.sweep = self._loop.call_later(self._idle_timeout, self._close_idle)

    def _kept(self, target: Target) -> Connection | None:
        """An idle connection, if there is one."""
        pool = self._pools.get(target.origin)
        if pool is not None:
            while pool.idle:
                connection = pool.idle.pop()
                if connection.usable:
                    return connection
        return None

    async def _acquire(self, target: Target, *, fresh: bool = False) -> Connection:
        """A new connection, or the next to get free once there are as many as may be.

        fresh: only a new one will do.
        """
        pool = self._pools.get(target.origin)
        if pool is None:
            pool = self._pools[target.origin] = _Pool(self, self._answers, self._loop.time)
        while len(pool.open) >= self._limit and not self._closed:
            if fresh and pool.idle:
                pool.idle.pop().abort()
                continue
            waiter: asyncio.Future[Connection | None] = self._loop.create_future()
            pool.waiting.append(waiter)
            try:
                given = await waiter
            except asyncio.CancelledError:
                self._give_back(pool, waiter)
                raise
            if given is not None and given.usable:
                if not fresh:
                    return given
                given.abort()
        if self._closed:
            raise ConnectFailed("the client is closed")
        return await self._connect(target, pool)

    def _give_back(self, pool: _Pool, waiter: asyncio.Future[Connection | None]) -> None:
        """Passes on what a waiter got that is not there any more to take it."""
        if not waiter.done() or waiter.cancelled():
            return
        given = waiter.result()
        if given is not None and given.usable:
            pool.free(given)
        else:
            _wake(pool, None)

    async def _connect(self, target: Target, pool: _Pool) -> Connection:
        connection = Connection(pool)
        pool.open.add(connection)
        try:
            async with pool.opening, asyncio.timeout(self._connect_timeout):
                await self._open(target, connection)
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                seconds = f"{self._connect_timeout:g} s"
                raise ConnectTimedOut(f"no connection within {seconds}") from None
            raise
        if not target.tls and not connection.usable:
            cause = "it sends or closes before it is asked"
            raise ConnectionLost(cause, head=False, untouched=True)
        return connection

    async def _open(self, target: Target, connection: Connection) -> None:
        """Tries the host's addresses in turn."""
        context = self._context() if target.tls else None
        failures: list[OSError] = []
        for address in await self._addresses(target):
            try:
                await self._loop.create_connection(
                    lambda: connection,
                    address,
                    target.port,
                    ssl=context,
                    server_hostname=target.host if context is not None else None,
                )
            except TimeoutError:
                # The system's own; ours comes as a cancellation.
                failures.append(OSError("no answer from the host"))
            except OSError as error:
                failures.append(error)
            else:
                return
        raise ConnectFailed(_cause(failures)) from None

    async def _addresses(self, target: Target) -> list[str]:
        try:
            ipaddress.ip_address(target.host)
        except ValueError:
            pass
        else:
            return [target.host]
        try:
            found = await self._loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except OSError:
            raise ConnectFailed("the host's name is not known") from None
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _close_idle(self) -> None:
        """Closes what was idle for too long: one timer for all connections."""
        self.sweep = None
        oldest = self._loop.time() - self._idle_timeout
        kept = float("inf")
        for pool in self._pools.values():
            for connection in list(pool.idle):
                if connection.idle_since <= oldest:
                    connection.abort()
                else:
                    kept = min(kept, connection.idle_since)
        if kept < float("inf"):
            delay = max(0.01, kept - oldest)
            self.sweep = self._loop.call_later(delay, self._close_idle)


def _wake(pool: _Pool, connection: Connection | None) -> None:
    """Tells the first in line that it may go on."""
    while pool.waiting:
        waiter = pool.waiting.popleft()
        if not waiter.done():
            waiter.set_result(connection)
            return


def _cause(failures: list[OSError]) -> str:
    """The cause in a few words, of the last address that was tried."""
    failure = failures[-1] if failures else OSError("the host has no address")
    if isinstance(failure, ConnectionRefusedError):
        return "connection refused"
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"TLS: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError):
        return f"TLS: {failure.reason or 'handshake failed'}"
    if isinstance(failure, ConnectionResetError):
        return "connection closed by the endpoint"
    return failure.strerror or str(failure) or type(failure).__name__
