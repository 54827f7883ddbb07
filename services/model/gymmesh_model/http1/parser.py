"""Reads one answer from bytes that may be cut anywhere: pure, no sockets, no clock."""

from __future__ import annotations

import re
from typing import Final

from gymmesh_model.http1.errors import ConnectionLost, ProtocolViolated, TooLarge
from gymmesh_model.http1.head import FIELD_LINE, Head

MAX_HEAD: Final = 64 * 1024
"""Bytes of an answer's head, interim answers and trailers included, by default."""

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_CHUNK_LINE: Final = 4096
_START: Final = b"HTTP/1."
_HEAD, _LENGTH, _TO_END, _SIZE, _DATA, _DATA_END, _TRAILER = range(7)
_SIZED: Final = (_LENGTH, _DATA)


class Parser:
    """One answer, fed piece by piece.

    head: once it has come. pieces: of the body, as they came; whoever takes some out may.
    size: bytes of the body so far. done: the answer is whole. surplus: more came than belongs to
    the answer.

    max_head, max_body: bytes. bodiless: the answer to a HEAD request.
    """

    __slots__ = (
        "_bodiless",
        "_head_size",
        "_held",
        "_left",
        "_max_body",
        "_max_head",
        "_state",
        "done",
        "head",
        "pieces",
        "size",
        "surplus",
    )

    def __init__(self, max_body: int, max_head: int = MAX_HEAD, *, bodiless: bool = False) -> None:
        self.head: Head | None = None
        self.pieces: list[bytes] = []
        self.done = False
        self.surplus = False
        self._max_body = max_body
        self._max_head = max_head
        self._bodiless = bodiless
        self._state = _HEAD
        self._held = bytearray()
        self._head_size = 0
        self._left = 0
        self.size = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Raises ProtocolViolated or TooLarge, and is of no use then."""
        if self.head is None:
            data = self._read_head(data)
        while data:
            state = self._state
            if self.done:
                self.surplus = True
                return
            if state in _SIZED:
                data = self._take(data)
            elif state == _TO_END:
                self.size += len(data)
                if self.size > self._max_body:
                    raise TooLarge(f"it is larger than {self._max_body} bytes")
                self.pieces.append(data)
                return
            else:
                data = self._read_line(data)

    @property
    def touched(self) -> bool:
        """Whether any byte came."""
        return self._head_size > 0 or len(self._held) > 0

    def end(self) -> None:
        """The connection has ended. Raises ConnectionLost unless that makes the answer whole."""
        if self._state == _TO_END:
            self.done = True
        elif not self.done:
            cause = "connection broke inside the answer"
            if self.head is None:
                cause = "connection closed by the endpoint"
            raise ConnectionLost(cause, head=self.head is not None, untouched=not self.touched)

    def _read_head(self, data: bytes) -> bytes:
        held = self._held
        seen = len(held)
        if seen:
            held += data
            end = held.find(b"\r\n\r\n", max(0, seen - 3))
        else:
            end = data.find(b"\r\n\r\n")
        if end < 0:
            if not seen:
                held += data
            self._check_start(len(held))
            return b""
        if seen:
            data = bytes(held)
            held.clear()
        self._spend(end + 4)
        self._take_head(Head(data[: end + 2]))
        rest = data[end + 4 :]
        return self._read_head(rest) if self.head is None and rest else rest

    def _check_start(self, size: int) -> None:
        """Fails early: what does not begin like an answer may never end like one."""
        if self._head_size + size > self._max_head:
            raise TooLarge(f"its head is larger than {self._max_head} bytes")
        if not _START.startswith(bytes(self._held[: len(_START)])):
            raise ProtocolViolated("its head is not one of HTTP/1.1")

    def _spend(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._max_head:
            raise TooLarge(f"its head is larger than {self._max_head} bytes")

    def _take_head(self, head: Head) -> None:
        status = head.status
        if status < 200:
            if status == 101:
                raise ProtocolViolated("it switches to another protocol")
            return
        self.head = head
        if self._bodiless or status == 204 or status == 304 or head.length == 0:
            self.done = True
        elif head.chunked:
            self._state = _SIZE
        elif head.length is None:
            head.keeps = False
            self._state = _TO_END
        else:
            if head.length > self._max_body:
                raise TooLarge(f"it is larger than {self._max_body} bytes")
            self._left = head.length
            self._state = _LENGTH

    def _take(self, data: bytes) -> bytes:
        """Body bytes, up to the end of the body or chunk, whose size was found small enough."""
        left = self._left
        rest = b""
        if len(data) > left:
            data, rest = data[:left], data[left:]
        self.pieces.append(data)
        self.size += len(data)
        self._left = left - len(data)
        if not self._left:
            if self._state == _LENGTH:
                self.done = True
            else:
                self._state = _DATA_END
        return rest

    def _read_line(self, data: bytes) -> bytes:
        """A line of the chunked coding, which may be cut anywhere, its line end too."""
        held = self._held
        end = data.find(b"\n")
        if end < 0:
            held += data
            if len(held) > _MAX_CHUNK_LINE:
                raise TooLarge("a line between its chunks is too long")
            return b""
        held += data[: end + 1]
        line = bytes(held)
        held.clear()
        if len(line) > _MAX_CHUNK_LINE:
            raise TooLarge("a line between its chunks is too long")
        if not line.endswith(b"\r\n"):
            raise ProtocolViolated("a line between its chunks ends with a bare line feed")
        self._take_line(line)
        return data[end + 1 :]

    def _take_line(self, line: bytes) -> None:
        if self._state == _SIZE:
            match = _CHUNK_LINE.fullmatch(line, 0, len(line) - 2)
            if match is None:
                raise ProtocolViolated("the size of a chunk is not a number")
            self._left = int(match.group(1), 16)
            if self.size + self._left > self._max_body:
                raise TooLarge(f"it is larger than {self._max_body} bytes")
            self._state = _DATA if self._left else _TRAILER
        elif self._state == _DATA_END:
            if line != b"\r\n":
                raise ProtocolViolated("a chunk is longer than it says")
            self._state = _SIZE
        elif line == b"\r\n":
            self.done = True
        else:
            self._spend(len(line))
            if not FIELD_LINE.fullmatch(line):
                raise ProtocolViolated("a trailer is not a header")
