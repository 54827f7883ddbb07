"""Reads one answer from bytes that may be cut anywhere: pure, no sockets, no clock."""

from __future__ import annotations

import re
from typing import Final

from gymmesh_model.http1.errors import ConnectionLost, ProtocolViolated, TooLarge
from gymmesh_model.http1.head import FIELD_LINE, Head

MAX_HEAD: Final = 64 * 1024
"""Bytes of an answer's head by default, with interim answers, trailers and chunk extensions."""

_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_CHUNK_LINE: Final = 4096
# Interim answers (1xx) before the one; each costs its sender nothing.
_MAX_INTERIM: Final = 32
_BARE: Final = re.compile(rb"(?<!\r)\n")
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
        "_interim",
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
        self._interim = 0
        self._left = 0
        self.size = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Raises ProtocolViolated or TooLarge, and is of no use then."""
        place = 0
        while self.head is None and place < len(data):
            data, place = self._read_head(data, place)
        # Chunks may be of one byte each: those of one piece are put together.
        taken: list[bytes] = []
        try:
            self._read_body(data, place, taken)
        finally:
            if taken:
                self.pieces.append(taken[0] if len(taken) == 1 else b"".join(taken))

    def _read_body(self, data: bytes, place: int, taken: list[bytes]) -> None:
        while place < len(data):
            if self.done:
                self.surplus = True
                return
            if self._state in _SIZED:
                place = self._take(data, place, taken)
            elif self._state == _TO_END:
                self.size += len(data) - place
                if self.size > self._max_body:
                    raise TooLarge(f"it is larger than {self._max_body} bytes")
                taken.append(data[place:])
                return
            else:
                place = self._read_line(data, place)

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

    def _read_head(self, data: bytes, place: int) -> tuple[bytes, int]:
        """Reads one head, an interim one too: the bytes that it ends in, and where in them."""
        held = self._held
        if held:
            seen = len(held)
            held += data[place:]
            end = held.find(b"\r\n\r\n", max(0, seen - 3))
        else:
            seen = place
            end = data.find(b"\r\n\r\n", place)
        if end < 0:
            if not held:
                held += data[place:]
                seen = 0
            self._check_start(len(held))
            if _BARE.search(held, max(0, seen - 1)):
                raise ProtocolViolated("a line of its head ends with a bare line feed")
            return data, len(data)
        if held:
            data, place = bytes(held), 0
            held.clear()
        self._spend(end + 4 - place)
        self._take_head(Head(data[place : end + 2]))
        return data, end + 4

    def _check_start(self, size: int) -> None:
        """Fails early: what does not begin like an answer may never end like one."""
        if self._head_size + size > self._max_head:
            raise self._too_large()
        if not _START.startswith(bytes(self._held[: len(_START)])):
            raise ProtocolViolated("its head is not one of HTTP/1.1")

    def _spend(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._max_head:
            raise self._too_large()

    def _too_large(self) -> TooLarge:
        what = "its head is" if self.head is None else "its chunk extensions and trailers are"
        return TooLarge(f"{what} larger than {self._max_head} bytes")

    def _take_head(self, head: Head) -> None:
        status = head.status
        if status < 200:
            if status == 101:
                raise ProtocolViolated("it switches to another protocol")
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise TooLarge(f"more than {_MAX_INTERIM} interim answers come before it")
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

    def _take(self, data: bytes, place: int, taken: list[bytes]) -> int:
        """Body bytes, up to the end of the body or chunk, whose size was found small enough."""
        piece = data[place : place + self._left]
        taken.append(piece)
        self.size += len(piece)
        self._left -= len(piece)
        if not self._left:
            if self._state == _LENGTH:
                self.done = True
            else:
                self._state = _DATA_END
        return place + len(piece)

    def _read_line(self, data: bytes, place: int) -> int:
        """A line of the chunked coding, which may be cut anywhere, its line end too."""
        held = self._held
        end = data.find(b"\n", place, place + _MAX_CHUNK_LINE + 1) + 1
        held += data[place : end or place + _MAX_CHUNK_LINE + 1]
        if len(held) > _MAX_CHUNK_LINE:
            raise TooLarge("a line between its chunks is too long")
        if not end:
            return len(data)
        line = bytes(held)
        held.clear()
        if not line.endswith(b"\r\n"):
            raise ProtocolViolated("a line between its chunks ends with a bare line feed")
        self._take_line(line)
        return end

    def _take_line(self, line: bytes) -> None:
        if self._state == _SIZE:
            match = _CHUNK_LINE.fullmatch(line, 0, len(line) - 2)
            if match is None:
                raise ProtocolViolated("the size of a chunk is not a number")
            # Extensions say nothing here, and their sender may have no end of them.
            self._spend(len(line) - 2 - match.end(1))
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
