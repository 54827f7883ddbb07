"""One connection: one request at a time, its answer whole or piece by piece.

There is no task for a connection: the event loop's callbacks feed the parser, which is made only
for an answer that needs one, and a whole answer resolves one future. Whoever stops waiting closes
the connection, since what the endpoint still sends would be taken for the next answer.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections import deque
from collections.abc import Collection
from typing import Final, Protocol, cast

from gymmesh_model.http1.answer import Answer, Bounds, PlainAnswers
from gymmesh_model.http1.errors import AnswerRepeated, ConnectionLost, Http1Error
from gymmesh_model.http1.head import Head
from gymmesh_model.http1.parser import Parser
from gymmesh_model.http1.turnstile import Turnstile

_NO_BOUNDS: Final = Bounds(0, 0)
# So many answers back one may come once more, on the same connection.
_REMEMBERED: Final = 64
# Bytes of a streamed answer that may wait for its reader before the socket is left alone.
_PAUSE_AT: Final = 256 * 1024


class Owner(Protocol):
    """Who keeps a connection."""

    @property
    def answers(self) -> Turnstile[Answer]:
        """Hands answers on."""

    @property
    def plain(self) -> PlainAnswers:
        """Reads the plain answers."""

    @property
    def constant(self) -> Collection[int]:
        """Checksums of the answers that this endpoint does give to several requests."""

    def free(self, connection: Connection) -> None:
        """Called once an answer is whole and the connection can be used again."""

    def forget(self, connection: Connection) -> None:
        """Called once, when it cannot be used any more."""


class Connection(asyncio.Protocol):
    """A transport and the answer that is being read from it."""

    __slots__ = (
        "_bounds",
        "_last",
        "_lost",
        "_owner",
        "_parser",
        "_stream",
        "_transport",
        "_waiter",
        "idle_since",
        "used",
    )

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._lost = False
        self._transport: asyncio.Transport | None = None
        self._parser: Parser | None = None
        # Of the answer that a waiter waits for.
        self._bounds = _NO_BOUNDS
        self._waiter: asyncio.Future[Answer] | None = None
        self._stream: Streamed | None = None
        # Checksums of the last answers' bodies.
        self._last: deque[int] = deque(maxlen=_REMEMBERED)
        self.used = False
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether a request may be sent: it is open, and nothing has come that nobody asked for."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if _is_readable(transport):
            # Its end, or what would be taken for the next answer.
            self.abort()
            return False
        return True

    def ask(self, waiter: asyncio.Future[Answer], head: bytes, body: bytes, bounds: Bounds) -> None:
        """Sends a request, whose whole answer, or an Http1Error, `waiter` gets.

        Whoever stops waiting for it calls `leave`.
        """
        transport = self._transport
        assert transport is not None
        self._waiter = waiter
        self._bounds = bounds
        transport.writelines((head, body))

    def leave(self, waiter: asyncio.Future[Answer]) -> None:
        """Nobody waits for that answer any more: closes the connection."""
        # It may be whole and the connection with the next one already.
        if self._waiter is waiter:
            self.abort()

    async def stream(self, head: bytes, body: bytes, bounds: Bounds) -> Streamed:
        """Sends a request and waits for the answer's head. Raises Http1Error."""
        transport = self._transport
        assert transport is not None
        parser = self._parser = bounds.parser()
        streamed = self._stream = Streamed(self, parser)
        transport.writelines((head, body))
        try:
            await streamed.begun()
        except BaseException:
            streamed.close()
            raise
        return streamed

    def abort(self) -> None:
        """Closes at once; who waits for an answer gets ConnectionLost."""
        if self._transport is not None:
            self._transport.abort()
        self._lose()

    def pause(self, on: bool) -> None:
        """Stops reading from the socket, or goes on."""
        if self._transport is None or self._transport.is_closing():
            return
        if on:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every event loop's transports are subclasses of the interface.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is not None and self._parser is None:
            answer = self._owner.plain.read(data, self._bounds)
            if answer is not None:
                self._give(waiter, answer, reusable=True)
                return
        parser = self._reading()
        if parser is None:
            # Nobody asked: whatever it is, it must not become the next answer.
            self.abort()
            return
        try:
            parser.feed(data)
        except Http1Error as error:
            self._fail(error)
            return
        if parser.done:
            self._finish(parser)
        elif self._stream is not None:
            self._stream.grew()

    def eof_received(self) -> None:
        parser = self._reading()
        if parser is None:
            return
        try:
            parser.end()
        except Http1Error as error:
            self._fail(error)
        else:
            self._finish(parser)

    def connection_lost(self, exc: Exception | None) -> None:
        parser = self._reading()
        if parser is None:
            self._lose()
            return
        cause = "connection closed by the endpoint"
        if parser.head is not None:
            cause = "connection broke inside the answer"
        elif isinstance(exc, OSError) and exc.strerror and not isinstance(exc, ConnectionError):
            cause = exc.strerror
        begun = parser.head is not None
        self._fail(ConnectionLost(cause, head=begun, untouched=not parser.touched))

    def _reading(self) -> Parser | None:
        """What reads the answer that is waited for, if one is."""
        if self._parser is None and self._waiter is not None:
            self._parser = self._bounds.parser()
        return self._parser

    def _finish(self, parser: Parser) -> None:
        head, pieces, stream, waiter = parser.head, parser.pieces, self._stream, self._waiter
        assert head is not None
        reusable = head.keeps and not parser.surplus
        if waiter is not None:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._give(waiter, Answer(head.status, head, body), reusable=reusable)
            return
        # What was streamed is not at hand any more to tell its copy by.
        self._leave_off(reusable=False)
        if stream is not None:
            stream.finish()

    def _give(self, waiter: asyncio.Future[Answer], answer: Answer, *, reusable: bool) -> None:
        """Hands a whole answer on, unless it is an earlier one once more.

        An endpoint or proxy that sends an answer twice would have every later request on this
        connection answered by the answer to the one before, so it is not used again.
        """
        checksum = zlib.crc32(answer.body)
        repeated = checksum in self._last and bool(answer.body)
        self._last.append(checksum)
        if repeated and answer.status == 200 and checksum not in self._owner.constant:
            self._fail(AnswerRepeated(checksum))
            return
        self._leave_off(reusable=reusable and not repeated)
        self._owner.answers.give(waiter, answer)

    def _leave_off(self, *, reusable: bool) -> None:
        """The answer is whole, and the connection free for the next one if that can be."""
        transport = self._transport
        assert transport is not None
        self._parser = self._waiter = self._stream = None
        self.used = True
        # A request that is not wholly sent yet would run into the next one.
        if reusable and not transport.get_write_buffer_size() and not transport.is_closing():
            self._owner.free(self)
        else:
            transport.abort()
            self._lose()

    def _fail(self, error: Http1Error) -> None:
        waiter, stream = self._waiter, self._stream
        self._parser = self._waiter = self._stream = None
        if self._transport is not None:
            self._transport.abort()
        self._lose()
        if stream is not None:
            stream.finish(error)
        elif waiter is not None and not waiter.done():
            waiter.set_exception(error)
            # Seen: a waiter that is cancelled right now will not look at it.
            waiter.exception()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._owner.forget(self)


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether something is waiting in the socket, or its other side has closed."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Streamed:
    """An answer whose body is read as it comes: an async iterator, and an async context manager.

    Left before its end, the connection is closed. Reading raises Http1Error.
    """

    def __init__(self, connection: Connection, parser: Parser) -> None:
        self._connection = connection
        self._parser = parser
        self._waiter: asyncio.Future[None] | None = None
        self._error: Http1Error | None = None
        self._taken = 0
        self._paused = False
        self._ended = False

    @property
    def head(self) -> Head:
        """The answer's head."""
        assert self._parser.head is not None
        return self._parser.head

    async def begun(self) -> None:
        """Waits for the head."""
        while self._parser.head is None and not self._ended:
            await self._more()
        if self._parser.head is None and self._error is not None:
            raise self._error

    async def __aenter__(self) -> Streamed:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __aiter__(self) -> Streamed:
        return self

    async def __anext__(self) -> bytes:
        """All that has come since the last time."""
        pieces = self._parser.pieces
        while not pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            await self._more()
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._taken += len(taken)
        self._resume()
        return taken

    async def read(self) -> bytes:
        """The rest of the body, whole."""
        return b"".join([piece async for piece in self])

    def close(self) -> None:
        """Closes the connection, unless the answer is whole already."""
        if not self._ended:
            self._ended = True
            self._connection.abort()

    def grew(self) -> None:
        """More has come."""
        if not self._paused and self._parser.size - self._taken > _PAUSE_AT:
            self._paused = True
            self._connection.pause(on=True)
        self._wake()

    def finish(self, error: Http1Error | None = None) -> None:
        """Nothing more will come."""
        if not self._ended:
            self._ended = True
            self._error = error
        # Before the connection's next answer, which would not be read either.
        self._resume()
        self._wake()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._connection.pause(on=False)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
