"""A whole answer, and the quick way to read one: pure.

Nearly every answer comes in one piece and says no more of itself than its length. Such a one is
read by one comparison or search; any other, and any that is wrong, is left to the parser, which
tells why.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gymmesh_model.http1.head import FIELD_NAME, FIELD_TEXT, Head, Headers
from gymmesh_model.http1.parser import Parser

# A header that says nothing of the answer's length, its coding or its connection's end.
_OTHER: Final = rb"""(?:\r\n
    (?!(?i:content-length|content-encoding|transfer-encoding
        |connection(?!:[ \t]*+keep-alive[ \t]*+\r)):)
    %b:%b
)*+""" % (FIELD_NAME, FIELD_TEXT)
_PLAIN: Final = re.compile(
    rb"""HTTP/1\.1[ ]200(?:[ ]%b)?+
    %b
    \r\n(?i:content-length):[ \t]*+([0-9]{1,18}+)[ \t]*+
    %b
    \r\n\r\n"""
    % (FIELD_TEXT, _OTHER, _OTHER),
    re.VERBOSE,
)


class Bounds(NamedTuple):
    """What an answer may have.

    max_body, max_head: bytes. bodiless: it has no body, since it is the answer to HEAD.
    """

    max_body: int
    max_head: int
    bodiless: bool = False

    def parser(self) -> Parser:
        """Reads an answer piece by piece."""
        return Parser(self.max_body, self.max_head, bodiless=self.bodiless)


class Answer:
    """A whole answer. status: the HTTP status."""

    __slots__ = ("_head", "body", "status")

    def __init__(self, status: int, head: Head | bytes, body: bytes) -> None:
        """head: also as `Head` takes it, to be read when somebody asks for it."""
        self.status = status
        self._head = head
        self.body = body

    @property
    def head(self) -> Head:
        """What its head says."""
        head = self._head
        return Head(head) if isinstance(head, bytes) else head

    @property
    def headers(self) -> Headers:
        """All headers."""
        return self.head.headers


class PlainAnswers:
    """Reads the plain answers of one origin.

    Plain: HTTP/1.1, status 200, its length given, within the bounds, in no coding, and the
    connection is kept.

    The next head mostly differs from the last in no more than its length, hence what stood before
    and after the length of the last one is remembered, and found again at far less than the cost
    of a search.
    """

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b"HTTP/1.1 200 OK\r\nContent-Length: "
        self._after = b"\r\n\r\n"

    def read(self, data: bytes, bounds: Bounds) -> Answer | None:
        """The answer that `data` is, from its first byte to its last, if it is a plain one.

        None for any other, good or bad.
        """
        before, after = self._before, self._after
        size = 0
        if data.startswith(before):
            end = data.find(b"\r\n", len(before))
            if data.startswith(after, end):
                size = end + len(after)
                if data[len(before) : end] != b"%d" % (len(data) - size):
                    size = 0
        size = size or self._search(data)
        max_body, max_head, bodiless = bounds
        if not size or size > max_head or len(data) - size > max_body or bodiless:
            return None
        return Answer(200, data[: size - 2], data[size:])

    def _search(self, data: bytes) -> int:
        """The size of a plain head that says the length of what follows, or 0."""
        match = _PLAIN.match(data)
        if match is None:
            return 0
        size = match.end()
        if int(match[1]) != len(data) - size:
            return 0
        self._before, self._after = data[: match.start(1)], data[match.end(1) : size]
        return size
