"""What can go wrong between sending a request and having its answer.

    Http1Error
    ├── ConnectFailed      no connection: refused, no such host, TLS refused, …
    │   └── ConnectTimedOut
    ├── ConnectionLost     it broke before the answer was whole
    ├── ProtocolViolated   what came is not an HTTP/1.1 answer
    │   └── AnswerRepeated the answer before it came once more
    └── TooLarge           the head or the body is larger than allowed

The texts name no address and quote nothing that was sent, so they hold no secret.
"""

from __future__ import annotations


class Http1Error(Exception):
    """The base of all; its text is a short cause without the endpoint's address."""


class ConnectFailed(Http1Error):
    """There is no connection, so nothing was sent."""


class ConnectTimedOut(ConnectFailed):
    """There was none within the time for it."""


class ConnectionLost(Http1Error):
    """The connection broke before the answer was whole.

    head: whether the answer's head had come. untouched: whether not one byte of it had.
    """

    def __init__(self, cause: str, *, head: bool, untouched: bool) -> None:
        super().__init__(cause)
        self.head = head
        self.untouched = untouched


class ProtocolViolated(Http1Error):
    """What came is not an HTTP/1.1 answer, or one that is not understood here."""


class AnswerRepeated(ProtocolViolated):
    """An earlier answer on this connection came once more, in place of the one asked for.

    checksum: of its body.
    """

    def __init__(self, checksum: int) -> None:
        super().__init__("it sent the answer to an earlier request once more")
        self.checksum = checksum


class TooLarge(Http1Error):
    """The answer's head or body exceeds its limit."""
