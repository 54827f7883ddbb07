"""How the programs in the sandboxes talk with the service: frames, and values as JSON.

This module is sent into the sandboxes with the programs that use it, so it imports no other module
of gymmesh.

A frame is four bytes, the length of the rest, most significant first; one byte, its kind; and
a body. The service reads lengths and kinds, and passes bodies on. It reads a body that a candidate
wrote only as text, cut to a limit.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # importing typing takes longer than all of the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# From all: it was started; it is ready for tests; it cannot use what it was ordered (text).
HELLO, READY, UNUSABLE = b"h", b"r", b"e"
# To all: what to do (JSON), and only once.
ORDER = b"o"
# A test for a candidate (JSON), and what the candidate made of it (JSON).
TEST, ANSWER = b"t", b"a"
# To the grader: what the next answer should be (JSON).
EXPECTED = b"x"
# From the grader and the harness: the answer is right; it is not (a problem, a line break, text).
PASSED, FAILED = b"p", b"f"

ERROR_LIMIT = 2000
# Bytes of a program's output; also the most that a task may expect.
OUTPUT_LIMIT = 2 * 1024 * 1024
_SEVERAL: dict[str, Any] = {"l": list, "t": tuple, "s": set, "f": frozenset}


class Opaque:
    """Stands for a value that has no plain form; equal to nothing but itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


def type_only(value: Any) -> Any:
    """What `encode` makes of a value without a plain form: its type's name."""
    return {"o": str(value.name if isinstance(value, Opaque) else type(value).__name__)}


def encode(value: Any, other: Callable[[Any], Any] = type_only) -> Any:
    """A value as JSON with its type; `other` encodes what has no plain form."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    # Through the base classes, so that a subclass cannot show other parts than it has.
    for tag, base in _SEVERAL.items():
        if isinstance(value, base):
            return {tag: [encode(part, other) for part in base.__iter__(value)]}
    if isinstance(value, dict):
        pairs = dict.items(value)
        return {"d": [[encode(key, other), encode(part, other)] for key, part in pairs]}
    if isinstance(value, bytes):
        return {"b": bytes.hex(value)}
    if isinstance(value, complex):
        return {"c": [value.real, value.imag]}
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        return str.__add__(value, "")
    if (kind.__module__, kind.__name__) == ("decimal", "Decimal"):
        return {"n": str(value)}
    if (kind.__module__, kind.__name__) == ("fractions", "Fraction"):
        return {"q": [value.numerator, value.denominator]}
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        return encode(value.item(), other)
    return other(value)


def decode(value: Any) -> Any:
    """The value that was given to `encode`. Raises any exception for an invalid encoding."""
    if not isinstance(value, dict):
        return value
    ((tag, parts),) = value.items()
    if tag == "d":
        return {decode(key): decode(part) for key, part in parts}
    if tag == "b":
        return bytes.fromhex(parts)
    if tag == "c":
        return complex(*parts)
    if tag == "n":
        from decimal import Decimal

        return Decimal(parts)
    if tag == "q":
        from fractions import Fraction

        return Fraction(*parts)
    if tag == "o":
        return Opaque(str(parts))
    return _SEVERAL[tag](decode(part) for part in parts)


class Channel:
    """Frames over two descriptors."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._in = incoming
        self._out = outgoing

    def read(self) -> tuple[bytes, bytes] | None:
        """The next frame's kind and body, or None at the end."""
        head = self._exactly(4)
        rest = self._exactly(int.from_bytes(head, "big")) if head else None
        return (rest[:1], rest[1:]) if rest else None

    def write(self, kind: bytes, body: bytes = b"") -> None:
        """Send a frame."""
        view = memoryview(frame(kind, body))
        while view:
            view = view[os.write(self._out, view) :]

    def order(self) -> Any:
        """The order of the first frame, which is trusted."""
        first = self.read()
        if first is None:
            raise SystemExit
        return json.loads(first[1])

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            chunk = os.read(self._in, size - len(data))
            if not chunk:
                return None
            data += chunk
        return bytes(data)


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """A frame as it is sent."""
    return (len(body) + 1).to_bytes(4, "big") + kind + body


def open_channel() -> Channel:
    """Reserve standard input and output for frames, and send the first frame."""
    channel = Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    channel.write(HELLO)
    return channel


def as_bytes(text: str) -> bytes:
    """A text as UTF-8, lone surrogates included, cut to the limit."""
    return text[:ERROR_LIMIT].encode("utf-8", "backslashreplace")


def said(error: BaseException) -> str:
    """The error in one short line."""
    try:
        return f"{type(error).__name__}: {error}"[:ERROR_LIMIT]
    except BaseException:
        return "an error that cannot be shown"
