"""The messages of an exec over a WebSocket, `v5.channel.k8s.io`: a channel's number, then bytes.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

PROTOCOL: Final = "v5.channel.k8s.io"
STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
#: How the program ended, once: a Status object.
ERROR: Final = 3
#: What closes the channel whose number follows.
_CLOSE: Final = 255
_PIECE_BYTES: Final = 1 << 16


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: list[_Cause] | None = None


class _ExecStatus(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None


class ExecRefused(Exception):
    """The program was not started, or its end is unknown."""


def stdin_frames(data: bytes) -> Iterator[bytes]:
    """The messages that carry bytes to standard input."""
    for start in range(0, len(data), _PIECE_BYTES):
        yield bytes((STDIN,)) + data[start : start + _PIECE_BYTES]


def end_of_stdin() -> bytes:
    """The message that closes standard input."""
    return bytes((_CLOSE, STDIN))


def split_frame(message: bytes) -> tuple[int, bytes]:
    """The channel of a message and its bytes; an empty message has the channel -1."""
    return (message[0], message[1:]) if message else (-1, b"")


def exit_code_of(status: bytes) -> int:
    """The exit code in the message of the channel ERROR. Raises ExecRefused."""
    try:
        said = msgspec.json.decode(status, type=_ExecStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ExecRefused("the node sent an invalid status") from None
    if said.status == "Success":
        return 0
    causes = (said.details.causes if said.details else None) or []
    if said.reason == "NonZeroExitCode":
        for cause in causes:
            if cause.reason == "ExitCode" and cause.message.isascii() and cause.message.isdigit():
                return int(cause.message)
    raise ExecRefused(said.message or said.reason or "the node gives no reason")
