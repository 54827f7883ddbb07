"""The messages of a pod's port over a WebSocket, `v4.channel.k8s.io`: a channel, then bytes.

Channel 0 carries the connection's bytes, and channel 1 errors. The first message of each channel is
the port's number. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = 0
_ERROR: Final = 1
_PORT_BYTES: Final = 2
_PIECE_BYTES: Final = 1 << 16


class ForwardFailed(Exception):
    """The node could not connect, or the connection broke; the text is the node's."""


def data_frames(data: bytes) -> Iterator[bytes]:
    """The messages that carry bytes to the port."""
    for start in range(0, len(data), _PIECE_BYTES):
        yield bytes((_DATA,)) + data[start : start + _PIECE_BYTES]


class ForwardReader:
    """Parses the messages that arrive from a port."""

    def __init__(self) -> None:
        self._to_skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}

    def take(self, message: bytes) -> bytes:
        """The connection's bytes in a message. Raises ForwardFailed."""
        channel, data = (message[0], message[1:]) if message else (-1, b"")
        skipped = min(self._to_skip.get(channel, 0), len(data))
        if skipped:
            self._to_skip[channel] -= skipped
            data = data[skipped:]
        if channel == _ERROR and data:
            raise ForwardFailed(data.decode("utf-8", "replace"))
        return data if channel == _DATA else b""
