"""An answer's head: status line and headers. Pure, and strict where laxness is dangerous.

Two readers that disagree on where an answer ends take one answer for another's. So whatever
decides the length must be said once and plainly: bare line feeds, folded lines, blanks before
the colon, a length beside chunks, two lengths, and codings that are not known are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gymmesh_model.http1.errors import ProtocolViolated

_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: %b)?+((?:\r\n%b:%b)*+)\r\n" % (_TEXT, _NAME, _TEXT)
)
_LINES: Final = re.compile(rb"\r\n(%b):[ \t]*+([^\r]*+)" % _NAME)
# Those that are read here; in lower case.
_READ: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|content-encoding):[ \t]*+([^\r]*+)"
)
_TYPE: Final = re.compile(rb"\r\ncontent-type:([^\r]*+)")
_MOST_DIGITS: Final = 18
FIELD_LINE: Final = re.compile(rb"%b:%b\r\n" % (_NAME, _TEXT))
"""A header's line, which may also stand in a trailer."""


class Headers(Mapping[str, str]):
    """Headers by name, whatever its case; several of one name are joined with a comma."""

    def __init__(self, lines: bytes) -> None:
        found: dict[str, str] = {}
        for name, value in _LINES.findall(lines):
            key, text = name.decode("ascii").lower(), value.rstrip(b" \t").decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
        self._found = found

    def __getitem__(self, name: str) -> str:
        return self._found[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Head:
    """What a head says.

    status: the code. length: bytes of the body, None when it does not say. chunked: whether it
    comes in chunks. keeps: whether the connection may be used again.
    """

    __slots__ = ("_lines", "chunked", "keeps", "length", "status")

    def __init__(self, raw: bytes) -> None:
        """raw: the head up to and with its last header's line end.

        Raises ProtocolViolated.
        """
        match = _HEAD.fullmatch(raw)
        if match is None:
            raise ProtocolViolated("its head is not one of HTTP/1.1")
        minor, status, self._lines = match.groups()
        self.status = int(status)
        self.length: int | None = None
        self.chunked = False
        self.keeps = minor == b"1"
        for name, value in _READ.findall(self._lines.lower()):
            _READERS[name](self, value.rstrip(b" \t"))
        if self.chunked and (self.length is not None or minor == b"0"):
            # Allowed by no version; the mark of an answer smuggled into another.
            raise ProtocolViolated("its head says its length in two ways")

    @property
    def headers(self) -> Headers:
        """All of them, read anew at each call."""
        return Headers(self._lines)

    @property
    def content_type(self) -> str:
        """In lower case, without parameters; empty when there is none."""
        found: list[bytes] = _TYPE.findall(self._lines.lower())
        return found[-1].partition(b";")[0].strip().decode("latin-1") if found else ""

    def _length(self, value: bytes) -> None:
        if self.length is not None or not value.isdigit() or len(value) > _MOST_DIGITS:
            raise ProtocolViolated("its Content-Length is not one number")
        self.length = int(value)

    def _coding(self, value: bytes) -> None:
        if self.chunked or value != b"chunked":
            raise ProtocolViolated("its Transfer-Encoding is not 'chunked'")
        self.chunked = True

    def _connection(self, value: bytes) -> None:
        options = [one.strip() for one in value.split(b",")]
        if b"close" in options:
            self.keeps = False
        elif b"keep-alive" in options and not self.keeps:
            # Of an HTTP/1.0 server; one that said close before stays closed.
            self.keeps = b"close" not in self._lines.lower()

    def _compressed(self, value: bytes) -> None:
        if value not in (b"", b"identity"):
            raise ProtocolViolated("it is compressed, which it was asked not to be")


_READERS: Final = {
    b"content-length": Head._length,
    b"transfer-encoding": Head._coding,
    b"connection": Head._connection,
    b"content-encoding": Head._compressed,
}
