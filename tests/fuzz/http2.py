"""HTTP/2 by hand (RFC 9113, RFC 7541), as no client would write it: frames and headers."""

from __future__ import annotations

import struct
from typing import Final

from tests.fuzz.values import Values

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20
_LONGEST: Final = 2**24 - 1


def frame(kind: int, flags: int, stream: int, payload: bytes, size: int | None = None) -> bytes:
    """A frame; `size` is what its head says, in place of the payload's."""
    length = len(payload) if size is None else size
    head = struct.pack(">I", length)[1:] + bytes((kind, flags)) + struct.pack(">I", stream)
    return head + payload


def header(name: bytes, value: bytes) -> bytes:
    """A header as a literal without indexing, without Huffman coding."""
    return b"\x00" + _sized(name) + _sized(value)


def grpc_call(values: Values, path: bytes, message: bytes) -> bytes:
    """The frames of a gRPC call on stream 1, with something odd in its headers or its message."""
    headers = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path),
        (b":authority", b"127.0.0.1"), (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    ]  # fmt: skip
    odd = (
        (b"grpc-timeout", values.one((b"0S", b"-1S", b"99999999999H", b"1x", b"", b"1n", b"10S"))),
        (b"grpc-encoding", values.one((b"gzip", b"deflate", b"identity", b"none", b"\xff"))),
        (b"content-type", values.one((b"text/html", b"application/grpc+json", b"", b"\x00"))),
        (b":method", values.one((b"GET", b"PUT", b"", b"post"))),
        (b":path", values.one((b"", b"/", b"//", b"/a", b"/%00/%ff", b"/" + b"a" * 9000))),
        (b"authorization", values.one((b"Bearer", b"Bearer " + b"\xff" * 20, b"", b"\x00"))),
        (b"x-bin", values.one((b"!!!!", b"====", b"YQ", b"Y" * 9000, b","))),
        (values.text().encode(), values.text().encode()),
    )
    for _ in range(values.random.randrange(3)):
        place = values.random.randrange(len(headers) + 1)
        headers.insert(place, values.one(odd))
    if values.chance(0.1):
        del headers[values.random.randrange(len(headers))]
    if values.chance(0.02):
        headers += [(b"x-%d" % number, b"a" * 100) for number in range(1000)]
    block = b"".join(header(*one) for one in headers)
    compressed = values.one((0, 0, 0, 1, 2, 255))
    size = values.one((len(message), len(message), len(message), 0, 2**32 - 1, 2**31, 7))
    body = bytes((compressed,)) + struct.pack(">I", size) + message
    ends = _END_STREAM if values.chance(0.8) else 0
    return frame(HEADERS, _END_HEADERS, 1, block[:16_000]) + frame(DATA, ends, 1, body[:16_000])


def conversation(values: Values, path: bytes, message: bytes) -> bytes:
    """All that a caller sends: mostly a preface, settings, a call, and frames of any kind."""
    start = PREFACE if values.chance(0.95) else PREFACE[: values.random.randrange(len(PREFACE))]
    parts = [start, frame(SETTINGS, 0, 0, b"")]
    for _ in range(values.random.randrange(1, 6)):
        chosen = values.random.random()
        if chosen < 0.5:
            parts.append(grpc_call(values, path, message))
        elif chosen < 0.9:
            parts.append(_any_frame(values))
        else:
            parts.append(_any_frame(values) * values.one((10, 300)))
    return b"".join(parts)


def _any_frame(values: Values) -> bytes:
    kind = values.one((*range(10), 0x20, 0xFF))
    flags = values.one((0, _END_STREAM, _END_HEADERS, _PADDED, _PRIORITY, 0xFF))
    stream = values.one((0, 0, 1, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1))
    payload = values.random.randbytes(values.one((0, 4, 5, 6, 8, 12, 100, 17_000)))
    size = values.one((None, None, None, 0, len(payload) + 1, _LONGEST))
    return frame(kind, flags, stream, payload, size)


def _sized(data: bytes) -> bytes:
    """A string with its length, an integer with a prefix of seven bits."""
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    out, size = bytearray((127,)), size - 127
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + data
