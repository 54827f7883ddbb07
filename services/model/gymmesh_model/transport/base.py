"""The interface between a backend and its HTTP transport, and the transport's errors.

    TransportError
    ├── ConnectFailed      no connection: refused, no such host, TLS refused, …
    │   └── ConnectTimedOut
    ├── ConnectionLost     the connection broke before the answer was complete
    ├── ProtocolViolated   the received bytes are not an HTTP/1.1 answer
    └── TooLarge           the head or the body is larger than allowed

The texts have no address and quote no sent text, so they have no secrets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

MAX_BODY: Final = 64 * 1024 * 1024
"""The most bytes of an answer's body."""

Body = bytes | Callable[[], bytes]
"""The body to send: bytes, or a function that creates the bytes each time they are sent.

With a function, the bytes need not stay in memory while the client waits for the answer, which may
take minutes.
"""


class TransportError(Exception):
    """The base of all; its text is a short cause without the endpoint's address."""


class ConnectFailed(TransportError):
    """There is no connection, so nothing was sent."""


class ConnectTimedOut(ConnectFailed):
    """There was no connection within the time for it."""


class ConnectionLost(TransportError):
    """The connection broke before the answer was whole."""


class ProtocolViolated(TransportError):
    """What came is not an HTTP/1.1 answer, or one that is not understood here."""


class TooLarge(TransportError):
    """The answer's head or body exceeds its limit."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A whole answer. status: of HTTP. headers: by name, whatever its case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamedAnswer(Protocol):
    """An answer whose body is still coming."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in any case."""

    @property
    def content_type(self) -> str:
        """In lower case, without parameters."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes; to be read once. Raises TransportError."""

    async def read(self) -> bytes:
        """The rest of the body. Raises TransportError."""


class Transport(Protocol):
    """Sends requests to endpoints. Made in the event loop, closed once.

    No redirect is followed (the key would go to the host that it names), no cookie is kept, and
    the size of an answer is bounded. There is no time-out but that for connecting: cancel the
    call, which closes its connection.
    """

    async def post(self, url: str, body: Body, headers: Mapping[str, str] | None) -> HttpAnswer:
        """The whole answer, whatever its status. Raises TransportError."""

    async def get(self, url: str) -> HttpAnswer:
        """The whole answer to a GET, whatever its status. Raises TransportError."""

    def stream(
        self, url: str, body: bytes, headers: Mapping[str, str] | None
    ) -> AbstractAsyncContextManager[StreamedAnswer]:
        """The answer as it comes; leaving the block ends it. Raises TransportError."""

    async def close(self) -> None:
        """Closes connections; calls in flight fail."""
