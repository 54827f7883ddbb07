"""An answer's head: status line and headers. Pure, and strict where laxness is dangerous.

Two readers that disagree on where an answer ends take one answer for another's. So whatever
decides the length must be said once and plainly: bare line feeds, folded lines, blanks before
the colon, a length beside chunks, two lengths, and codings that are not known are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from gymmesh_model.http1.errors import ProtocolViolated

FIELD_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
"""A header's name, as a regular expression that never gives back what it took."""

FIELD_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*+"
"""What may stand after a header's colon."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: %b)?+" % FIELD_TEXT)
_FIELD: Final = re.compile(rb"(%b):[ \t]*+(%b)" % (FIELD_NAME, FIELD_TEXT))
_LINES: Final = re.compile(rb"\r\n(%b):[ \t]*+([^\r]*+)" % FIELD_NAME)
_TYPE: Final = re.compile(rb"\r\ncontent-type:([^\r]*+)")
_MOST_DIGITS: Final = 18
# Lines that are remembered, since those of an endpoint's heads hardly ever change.
_REMEMBERED: Final = 128
FIELD_LINE: Final = re.compile(rb"%b:%b\r\n" % (FIELD_NAME, FIELD_TEXT))
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

    __slots__ = ("_raw", "chunked", "keeps", "length", "status")

    def __init__(self, raw: bytes) -> None:
        """raw: the head up to and with its last header's line end.

        Raises ProtocolViolated.
        """
        self._raw = raw
        lines = raw.split(b"\r\n")
        # The first is the status, and after the last line's end there is nothing.
        self.status, is_1_1 = _status(lines[0])
        self.length: int | None = None
        self.chunked = False
        self.keeps = is_1_1
        for line in lines[1:-1]:
            said = _said(line)
            if said is not None:
                read, value = said
                read(self, value)
        if self.chunked and (self.length is not None or not is_1_1):
            # Allowed by no version; the mark of an answer smuggled into another.
            raise ProtocolViolated("its head says its length in two ways")

    @property
    def headers(self) -> Headers:
        """All of them, read anew at each call."""
        return Headers(self._raw)

    @property
    def content_type(self) -> str:
        """In lower case, without parameters; empty when there is none."""
        found: list[bytes] = _TYPE.findall(self._raw.lower())
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
            self.keeps = b"close" not in self._raw.lower()

    def _compressed(self, value: bytes) -> None:
        if value not in (b"", b"identity"):
            raise ProtocolViolated("it is compressed, which it was asked not to be")


_READERS: Final = {
    b"content-length": Head._length,
    b"transfer-encoding": Head._coding,
    b"connection": Head._connection,
    b"content-encoding": Head._compressed,
}


@lru_cache(_REMEMBERED)
def _status(line: bytes) -> tuple[int, bool]:
    """The code, and whether the version is 1.1 and not 1.0."""
    match = _STATUS.fullmatch(line)
    if match is None:
        raise ProtocolViolated("its head is not one of HTTP/1.1")
    return int(match[2]), match[1] == b"1"


@lru_cache(_REMEMBERED)
def _said(line: bytes) -> tuple[Callable[[Head, bytes], None], bytes] | None:
    """What a header's line says of the answer's length and connection: who reads its value, and
    the value in lower case. None for any other line.
    """
    match = _FIELD.fullmatch(line)
    if match is None:
        raise ProtocolViolated("its head is not one of HTTP/1.1")
    read = _READERS.get(match[1].lower())
    return None if read is None else (read, match[2].lower().rstrip(b" \t"))
