"""Server-sent events, read from the chunks of a body. Pure."""

from __future__ import annotations

import re
from typing import Final

# A carriage return at the end may be the first half of a line break.
_BREAK: Final = re.compile(rb"\r\n|\n|\r(?=[^\n])")


class EventReader:
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """The events that end in this chunk, each with its data. Comments are passed over."""
        self._pieces.append(chunk)
        # Lines may be long: what has no end yet is not looked at again.
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        *lines, rest = _BREAK.split(b"".join(self._pieces))
        self._pieces = [rest]
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> tuple[str, str] | None:
        if not line:
            event, data = self._event, self._data
            self._event, self._data = "", []
            return (event or "message", "\n".join(data)) if event or data else None
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        return None
