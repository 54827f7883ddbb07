"""Server-sent events as the four APIs write them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gymmesh_responses import dumps_clean

COMMENT: Final = b": keep-alive\n\n"
"""An event without data, which parsers of server-sent events skip."""

MAX_DELTA: Final = 4096
"""The maximum number of characters of a text in one event."""


def named_event(name: str, data: Any) -> bytes:
    """An event with a name and JSON data."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps_clean(data))


def plain_event(data: Any) -> bytes:
    """An event with only JSON data."""
    return b"data: %b\n\n" % dumps_clean(data)


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of at most MAX_DELTA characters; an empty text has no piece."""
    for start in range(0, len(text), MAX_DELTA):
        yield text[start : start + MAX_DELTA]
