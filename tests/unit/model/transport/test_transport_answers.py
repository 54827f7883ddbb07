"""The transport against servers whose answers are cut, unusual or broken, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from gymmesh_model.transport import (
    ConnectionLost,
    ProtocolViolated,
    TooLarge,
)
from tests.unit.model.transport.raw_server import (
    CHUNKED,
    HELLO,
    OK,
    Link,
    failure,
    hello,
    said,
    sends,
    serving,
    settled,
    transport,
    whole,
)


def test_a_large_answer_comes_whole(run: Any) -> None:
    body = bytes(range(256)) * 20_000

    async def main() -> None:
        async with serving(sends(whole(body))) as server, transport() as made:
            assert await said(made, server.url) == body

    run(main())


@pytest.mark.parametrize("cut", ["bytewise", "drip"])
def test_answers_may_be_cut_anywhere(run: Any, cut: str) -> None:
    start = b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED
    answers = [
        start + b"3;x=y\r\nhel\r\n2\r\nl%d\r\n0\r\nA: b\r\n\r\n" % number for number in range(2)
    ]
    size, pause = (1, 0.0) if cut == "bytewise" else (9, 0.01)

    async def script(link: Link) -> None:
        sock = link.writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for raw in answers:
            pieces = [raw[place : place + size] for place in range(0, len(raw), size)]
            await link.request()
            await link.send(*pieces, pause=pause)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for number in range(2):
                assert await said(made, server.url) == b"hell%d" % number
            assert len(server.links) == 1

    run(main())


def test_headers_are_found_whatever_their_case(run: Any) -> None:
    head = b"retry-After:  3 \r\nContent-Type: Text/HTML ; q=1\r\nContent-Length: 0\r\n\r\n"

    async def main() -> None:
        async with serving(sends(OK + head)) as server, transport() as made:
            headers = (await made.post(server.url, b"{}")).headers
            assert headers["RETRY-AFTER"] == headers.get("retry-after") == "3"
            assert headers.get("none") is None
            async with made.stream(server.url, b"{}") as answer:
                assert answer.content_type == "text/html"

    run(main())


@pytest.mark.parametrize(
    ("raw", "kind", "cause"),
    [
        (b"", ConnectionLost, "connection closed by the endpoint"),
        (b"HTT", ConnectionLost, "connection closed by the endpoint"),
        (OK, ConnectionLost, "connection closed by the endpoint"),
        (OK + b"Content-Length: 9\r\n\r\nhello", ConnectionLost, "broke during the answer"),
        (CHUNKED + b"5\r\nhello\r\n", ConnectionLost, "broke during the answer"),
        (b"hello, client\r\n", ProtocolViolated, "the response's head is not valid HTTP/1.1"),
        (
            OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            ProtocolViolated,
            "the response's head is not valid HTTP/1.1",
        ),
        (CHUNKED + b"what\r\n", ProtocolViolated, "not valid HTTP/1.1"),
        (HELLO + b"\0", ProtocolViolated, "the response's head is not valid HTTP/1.1"),
        (OK + b"X: " + b"x" * 100_000, TooLarge, "the response's headers are larger than allowed"),
        (OK + b"X: " + b"x" * 60_000 + b"\r\nY: " + b"y" * 6_000 + b"\r\n\r\n", TooLarge, "head"),
        (OK + b"Content-Length: 999999999999\r\n\r\n", TooLarge, "larger than 67108864 bytes"),
    ],
)
def test_what_is_no_answer_is_a_typed_failure(run: Any, raw: bytes, kind: Any, cause: str) -> None:
    async def main() -> None:
        async with serving(sends(raw)) as server, transport() as made:
            error = await failure(made, server.url)
            assert type(error) is kind
            assert cause in str(error)
            assert len(server.links) == 1
            await server.all_gone()

    run(main())


@pytest.mark.parametrize("raw", [b"", OK + b"Content-Length: 9\r\n\r\nhello", OK + b"\r\nhello"])
def test_a_reset_is_a_lost_connection(run: Any, raw: bytes) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(raw)
        link.reset()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert isinstance(await failure(made, server.url), ConnectionLost)
            async with serving(hello) as good:
                assert await said(made, good.url) == b"hello"

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
    ],
    ids=["close", "HTTP/1.0", "a second answer"],
)
def test_such_a_connection_is_not_used_again(run: Any, raw: bytes) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(raw)
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for number in (1, 2):
                assert await said(made, server.url) == b"hello"
                assert len(server.links) == number
        await server.all_gone()

    run(main())


def test_what_comes_unasked_is_not_the_next_answer(run: Any) -> None:
    sent = asyncio.Event()

    async def script(link: Link) -> None:
        await link.request()
        await link.send(HELLO)
        if link.index == 0:
            await asyncio.sleep(0.05)
            await link.send(OK + b"Content-Length: 3\r\n\r\nbad")
            sent.set()
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert await said(made, server.url) == b"hello"
            await sent.wait()
            assert await said(made, server.url) == b"hello"
            assert len(server.links) == 2

    run(main())


def test_what_comes_before_anything_is_asked_is_no_answer(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = aiohttp.BaseConnector.connect

    async def connect_and_wait(*given: Any) -> Any:
        connection = await connect(*given)
        protocol = connection.protocol
        assert protocol is not None
        await settled(lambda: protocol.should_close)  # it has something to read
        return connection

    async def script(link: Link) -> None:
        await link.send(HELLO)
        await link.gone()

    async def main() -> None:
        monkeypatch.setattr(aiohttp.BaseConnector, "connect", connect_and_wait)
        async with serving(script) as server, transport() as made:
            error = await failure(made, server.url)
            assert type(error) is ConnectionLost
            assert str(error) == "the endpoint sent data or closed the connection before a request"
            await server.all_gone()

    run(main())


def test_the_end_of_the_connection_ends_an_answer_without_length(run: Any) -> None:
    async def main() -> None:
        async with serving(sends(OK + b"\r\nhel", b"lo")) as server, transport() as made:
            for number in (1, 2):
                assert await said(made, server.url) == b"hello"
                assert len(server.links) == number

    run(main())
