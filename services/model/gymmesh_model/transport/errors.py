"""What can go wrong between sending a request and having its answer.

    TransportError
    ├── ConnectFailed      no connection: refused, no such host, TLS refused, …
    │   └── ConnectTimedOut
    ├── ConnectionLost     it broke before the answer was whole
    ├── ProtocolViolated   what came is not an HTTP/1.1 answer
    └── TooLarge           the head or the body is larger than allowed

The texts name no address and quote nothing that was sent, so they hold no secret.
"""

from __future__ import annotations


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
