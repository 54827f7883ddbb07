"""The proxy over real sockets of the loopback address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.proxy import HostsProxy, proxy_environment


@dataclass
class Origin:
    """A server that notes what it gets and answers with fixed bytes once it has got `after`."""

    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    after: bytes = b"\r\n\r\n"
    port: int = 0
    seen: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = b""
        self.seen.append(got)
        number = len(self.seen) - 1
        answered = False
        while piece := await reader.read(1 << 16):
            got += piece
            self.seen[number] = got
            if self.after in got and not answered:
                answered = True
                writer.write(self.answer)
                if b"Content-Length" not in self.answer:
                    break
        writer.close()


@asynccontextmanager
async def origin(**fields: Any) -> AsyncGenerator[Origin]:
    made = Origin(**fields)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@asynccontextmanager
async def proxy(
    hosts: Sequence[sandbox_pb2.AllowedHost], **limits: Any
) -> AsyncGenerator[tuple[HostsProxy, int]]:
    made = HostsProxy(hosts, **limits)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    await made.open(listening)
    try:
        yield made, port
    finally:
        await made.close()


def local(port: int, name: str = "127.0.0.1") -> sandbox_pb2.AllowedHost:
    return sandbox_pb2.AllowedHost(name=name, ports=[port], private=True)


async def ask(port: int, *pieces: bytes) -> bytes:
    """All that the proxy answers to some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
    finally:
        writer.close()


def get(port: int, rest: str = "", host: str = "127.0.0.1") -> bytes:
    return f"GET http://{host}:{port}/a?b HTTP/1.1\r\nHost: {host}:{port}\r\n{rest}\r\n".encode()


async def test_a_request_is_sent_on_and_answered() -> None:
    async with origin() as far, proxy([local(far.port)]) as (_, port):
        secret = "Proxy-Authorization: x\r\nConnection: X-Mine\r\nX-Mine: 1\r\nX-Given: 2\r\n"
        answer = await ask(port, get(far.port, secret))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"hello")
        (seen,) = far.seen
        assert seen.startswith(b"GET /a?b HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{far.port}\r\n".encode() in seen
        assert b"x-given: 2" in seen.lower()
        for name in (b"x-mine", b"proxy-authorization"):
            assert name not in seen.lower()


@pytest.mark.parametrize(
    ("framing", "body"),
    [("Content-Length: 6", b"abcdef"), ("Transfer-Encoding: chunked", b"6\r\nabcdef\r\n0\r\n\r\n")],
)
async def test_only_the_one_request_reaches_the_server(framing: str, body: bytes) -> None:
    async with origin(after=body) as far, proxy([local(far.port)]) as (_, port):
        head = get(far.port, f"{framing}\r\n").replace(b"GET", b"POST", 1)
        smuggled = b"GET /other HTTP/1.1\r\nHost: other.test\r\n\r\n"
        answer = await ask(port, head + body + smuggled, smuggled)
        assert answer.endswith(b"hello")
        (seen,) = far.seen
        assert seen.endswith(body)
        assert b"other" not in seen


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", b"\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
    ],
)
async def test_answers_of_several_kinds(answer: bytes, end: bytes) -> None:
    async with origin(answer=answer) as far, proxy([local(far.port)]) as (_, port):
        request = get(far.port).replace(b"HTTP/1.1", b"HTTP/1.0")
        got = await ask(port, request)
        assert got.endswith(end)


async def test_an_answer_that_breaks_off_is_not_made_whole() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with origin(answer=answer) as far, proxy([local(far.port)]) as (_, port):
        got = await ask(port, get(far.port))
        assert b"hello" in got
        assert not got.endswith(b"0\r\n\r\n")


async def test_a_tunnel() -> None:
    async with origin(after=b"raw") as far, proxy([local(far.port)]) as (_, port):
        connect = f"CONNECT 127.0.0.1:{far.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(connect + b"\x16\x03raw")  # a program may send before the answer
        writer.write_eof()
        async with asyncio.timeout(60):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(far.answer)
        assert far.seen == [b"\x16\x03raw"]
        writer.close()


async def test_a_private_address_needs_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    async with origin() as far:
        listed = [
            sandbox_pb2.AllowedHost(name="localhost", ports=[far.port]),
            sandbox_pb2.AllowedHost(name="127.0.0.1", ports=[far.port]),
        ]
        async with proxy(listed) as (_, port):
            for host in ("localhost", "127.0.0.1", "LOCALHOST."):
                answer = await ask(port, get(far.port, host=host))
                assert answer.startswith(b"HTTP/1.1 403 "), answer
                assert answer.rpartition(b"\r\n\r\n")[2].count(b"\n") == 1
        assert not far.seen


async def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was checked is the one that is connected to."""
    asked: list[object] = []
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        if host == "name.test":
            asked.append(host)
            address = "192.0.2.1" if len(asked) > 1 else "127.0.0.1"
            return real(address, port, *more, **options)
        return real(host, port, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with origin() as far, proxy([local(far.port, "name.test")]) as (_, port):
        assert (await ask(port, get(far.port, host="name.test"))).endswith(b"hello")
        assert asked == ["name.test"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", 403),
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n", 403),
        (
            b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nnot all",
            403,
        ),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", 400),
        (b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", 400),
        (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 400),
        (b"GET http://a.test/ HTTP/1.1\r\n folded\r\n\r\n", 400),
        (b"\x16\x03\x01 not HTTP\r\n\r\n", 400),
        (b"GET http://a.test/ HTTP/1.1\r\nX: " + b"x" * 100_000, 431),
    ],
)
async def test_refusals(request_: bytes, status: int) -> None:
    async with proxy([sandbox_pb2.AllowedHost(name="listed.test")]) as (_, port):
        answer = await ask(port, request_)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
        assert answer.rpartition(b"\r\n\r\n")[2].count(b"\n") == 1


async def test_a_host_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        unused = closed.getsockname()[1]
    async with proxy([local(unused), local(80, "name.invalid")]) as (_, port):
        for request in (get(unused), get(80, host="name.invalid")):
            assert (await ask(port, request)).startswith(b"HTTP/1.1 502 ")


async def test_connections_are_bounded() -> None:
    async with proxy([], most_connections=1) as (made, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET ")  # a request that is not whole
        assert (await ask(port)).startswith(b"HTTP/1.1 503 ")
        await made.close()
        assert await reader.read() == b""
        writer.close()


async def test_a_tunnel_without_traffic_ends() -> None:
    async with origin(after=b"never") as far, proxy([local(far.port)], idle_s=0.2) as (_, port):
        connect = f"CONNECT 127.0.0.1:{far.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        assert (await ask(port, connect)).startswith(b"HTTP/1.1 200 ")


async def test_the_end_of_the_proxy_ends_connections() -> None:
    async with origin(after=b"never") as far, proxy([local(far.port)]) as (made, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"CONNECT 127.0.0.1:{far.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        await made.close()
        assert await reader.read() in (b"", b"\r\n")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.close()


def test_programs_find_the_proxy() -> None:
    found = proxy_environment(7, [sandbox_pb2.AllowedHost(name="LOCALHOST")])
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        assert found.pop(name) == "http://127.0.0.1:7"
    assert found == {"NO_PROXY": "127.0.0.1,::1", "no_proxy": "127.0.0.1,::1"}
