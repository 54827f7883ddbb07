"""Server-sent events, read from chunks that may split anywhere: pure.

Format: the WHATWG HTML standard, "Server-sent events". Lines end with LF, CR LF or CR; a blank
line ends an event. Only `data` is of interest: endpoints repeat the event's name inside it.
Bytes are split, never text, so that a character cut in two by a chunk is whole again here.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from gymmesh_model.backends.calls import StreamReader

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseDecoder:
    """Collects chunks; `feed` gives the data of each event that they complete."""

    def __init__(self) -> None:
        # Pieces of the line that has not ended yet: joined once, however many chunks it takes.
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that end in this chunk, the lines of each joined with LF."""
        if self._after_cr and chunk:
            # The LF of a CR LF whose CR ended the chunk before.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        pieces = _LINE_END.split(chunk)
        found: list[bytes] = []
        for piece in pieces[:-1]:
            self._line.append(piece)
            line = b"".join(self._line)
            self._line.clear()
            self._take(line, found)
        if pieces[-1]:
            self._line.append(pieces[-1])
        return found

    def _take(self, line: bytes, found: list[bytes]) -> None:
        if self._first:
            line, self._first = line.removeprefix(_BOM), False
        if not line:
            if self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
            return
        field, _, value = line.partition(b":")
        # A comment has an empty field name; `event`, `id` and `retry` say nothing needed here.
        if field == b"data":
            self._data.append(value.removeprefix(b" "))


async def read_events(reader: StreamReader, pieces: AsyncIterator[bytes]) -> None:
    """Feeds a reader the events of a stream, until it has its answer."""
    events = SseDecoder()
    async for piece in pieces:
        for data in events.feed(piece):
            reader.feed(data)
            if reader.ended:
                return
    reader.end()
