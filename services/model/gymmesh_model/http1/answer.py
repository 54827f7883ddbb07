"""A whole answer, and the quick way to read one: pure.

Nearly every answer comes in one piece and says no more of itself than its length. Such a one is
read by one comparison or search; any other, and any that is wrong, is left to the parser, which
tells why.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

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
    %b"""
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


class Answer(msgspec.Struct, eq=False):
    """A whole answer.

    status: the HTTP status. said: its head, or the bytes of it without the last line's end, to be
    read when somebody asks for it.
    """

    # A Struct, as there is one for every call: it is filled without a step in Python.

    status: int
    said: Head | bytes
    body: bytes

    @property
    def head(self) -> Head:
        """What its head says."""
        said = self.said
        return Head(said + b"\r\n") if isinstance(said, bytes) else said

    @property
    def headers(self) -> Headers:
        """All headers."""
        return self.head.headers


class PlainAnswers:
    """Reads the plain answers of one origin.

    Plain: HTTP/1.1, status 200, its length given, within the bounds, in no coding, and the
    connection is kept.

    The next head mostly differs from the last in no more than its length, hence what stood before
    and after the length of the last one is remembered, and compared at far less than the cost of a
    search.
    """

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b"HTTP/1.1 200 OK\r\nContent-Length: "
        self._after = b""

    def read(self, data: bytes, bounds: Bounds) -> Answer | None:
        """The answer that `data` is, from its first byte to its last, if it is a plain one.

        None for any other, good or bad.
        """
        head, end, body = data.partition(b"\r\n\r\n")
        length = len(body)
        if head != b"%b%d%b" % (self._before, length, self._after) and not self._is_plain(
            head, length
        ):
            return None
        max_body, max_head, bodiless = bounds
        if not end or length > max_body or len(head) + 4 > max_head or bodiless:
            return None
        return Answer(200, head, body)

    def _is_plain(self, head: bytes, length: int) -> bool:
        """Whether it is a plain head that says this length."""
        match = _PLAIN.fullmatch(head)
        if match is None or int(match[1]) != length:
            return False
        self._before, self._after = head[: match.start(1)], head[match.end(1) :]
        return True
