"""A whole answer, and the quick way to read one: pure.

Nearly every answer comes in one piece and says no more of itself than its length. Such a one is
read by one search; any other, and any that is wrong, is left to the parser, which tells why.
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


def plain_answer(data: bytes, bounds: Bounds) -> Answer | None:
    """The answer that `data` is, from its first byte to its last, if it is a plain one.

    Plain: HTTP/1.1, status 200, its length given, within the bounds, in no coding, and the
    connection is kept. None for any other, good or bad.
    """
    match = _PLAIN.match(data)
    if match is None:
        return None
    size = match.end()
    length = int(match[1])
    max_body, max_head, bodiless = bounds
    if size + length != len(data) or length > max_body or size > max_head or bodiless:
        return None
    return Answer(200, data[: size - 2], data[size:])
