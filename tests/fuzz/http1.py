"""HTTP/1 requests: good ones, and every way of writing one wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.values import Values
from tests.fuzz.wire import BYTE_CHANGES

_METHODS: Final = (
    b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT",
    b"PRI", b"get", b"", b"A" * 5000, b"GE T", b"\x00",
)  # fmt: skip
_PATHS: Final = (
    b"/", b"*", b"", b"//", b"/../../etc/passwd", b"/%00", b"/%2e%2e/%2e%2e", b"/%zz", b"/\xff",
    b"http://127.0.0.1:1/", b"/metrics", b"/v1/http-sd", b"/mcp", b"/session", b"/session/tokens",
    b"/session/items", b"/metrics?name[]=a&name[]=b", b"/metrics?" + b"a=b&" * 2000, b"/?%ff=%ff",
    b"/" + b"a" * 70_000, b"/a b", b"/\r\nX: y", b"/#a", b"/;a=b",
)  # fmt: skip
_VERSIONS: Final = (b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"HTTP", b"", b"HTTP/1.1x")
_HEADERS: Final = (
    (b"Content-Length", b"-1"), (b"Content-Length", b"99999999999999999999"),
    (b"Content-Length", b"1, 2"), (b"Content-Length", b"+5"), (b"Content-Length", b"0x5"),
    (b"Content-Length", b"1000000"), (b"Transfer-Encoding", b"chunked"),
    (b"Transfer-Encoding", b"chunked, chunked"), (b"Transfer-Encoding", b"gzip"),
    (b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"br"), (b"Expect", b"100-continue"),
    (b"Upgrade", b"websocket"), (b"Upgrade", b"h2c"), (b"Connection", b"upgrade, close, close"),
    (b"Connection", b"keep-alive"), (b"Host", b""), (b"Host", b"a" * 9000), (b"Host", b"\xff"),
    (b"Range", b"bytes=0-0,-1"), (b"Accept-Encoding", b"gzip"), (b"Accept-Encoding", b"*;q=x"),
    (b"Accept", b"application/openmetrics-text; version=1.0.0; escaping=x"), (b"Accept", b";;,="),
    (b"Accept", b"text/event-stream"), (b"Authorization", b"Bearer"), (b"Authorization", b"\xff"),
    (b"Authorization", b"Bearer " + b"a" * 9000), (b"Content-Type", b"application/json;charset=x"),
    (b"Content-Type", b"text/plain"), (b"Mcp-Protocol-Version", b"1999-01-01"), (b"", b""),
    (b"Mcp-Session-Id", b"\x01"), (b"Cookie", b"a=b;" * 3000), (b"X", b"a\r\n folded"),
    (b"X-Forwarded-For", b"1.1.1.1"), (b"X" * 9000, b"y"), (b"a b", b"c"), (b"Last-Event-ID", b"1"),
    (b"Sec-WebSocket-Key", b"a"), (b"Date", b"\x00"),
)  # fmt: skip
_CHUNKS: Final = (
    b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n", b"zz\r\n", b"ffffffffffffffff\r\na",
    b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", b"5\r\nhel", b"5\nhello\n0\n\n", b"1" * 300 + b"\r\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """A good request to be spoilt."""

    method: bytes = b"GET"
    path: bytes = b"/"
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    body: bytes = b""

    def encoded(self, version: bytes = b"HTTP/1.1", end: bytes = b"\r\n") -> bytes:
        """Its bytes, with a Host; a body has its length."""
        headers = [(b"Host", b"127.0.0.1"), *self.headers]
        if self.body:
            headers.append((b"Content-Length", str(len(self.body)).encode()))
        lines = [b" ".join((self.method, self.path, version))]
        lines += [name + b": " + value for name, value in headers]
        return end.join([*lines, b"", b""]) + self.body


def spoilt(values: Values, good: Request) -> bytes:
    """The bytes of a request with something wrong, of several in a row, or of a good one."""
    share = values.random.random()
    if share < 0.1:
        return good.encoded()
    if share < 0.15:
        return values.random.randbytes(values.random.randrange(500))
    if share < 0.2:
        return good.encoded() * values.one((2, 20))
    if share < 0.25:
        return good.encoded(end=values.one((b"\n", b"\r", b"\r\r\n", b"\x00\r\n")))
    data = _with_other_parts(values, good)
    return values.one(BYTE_CHANGES)(values, data) if values.chance(0.25) else data


def _with_other_parts(values: Values, good: Request) -> bytes:
    headers = list(good.headers)
    if headers and values.chance(0.2):
        del headers[values.random.randrange(len(headers))]
    for _ in range(values.one((0, 1, 1, 2, 200) if values.chance(0.1) else (0, 1, 1, 2))):
        headers.insert(values.random.randrange(len(headers) + 1), values.one(_HEADERS))
    body = good.body
    if values.chance(0.2):
        headers.append((b"Transfer-Encoding", b"chunked"))
        body = values.one(_CHUNKS)
    request = Request(
        values.one(_METHODS) if values.chance(0.2) else good.method,
        values.one(_PATHS) if values.chance(0.25) else good.path,
        tuple(headers),
        body,
    )
    version = values.one(_VERSIONS) if values.chance(0.1) else b"HTTP/1.1"
    return request.encoded(version)
