"""The transport against servers that answer, fail and mislead, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gymmesh_model.transport import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolViolated,
    TooLarge,
)
from tests.support.ports import free_port
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


def test_connections_are_kept(run: Any) -> None:
    async def main() -> None:
        async with serving(hello) as server, transport({"X-Key": "k"}) as made:
            both = [*await asyncio.gather(said(made, server.url), said(made, server.url))]
            assert both == [b"hello", b"hello"]
            for _ in range(6):
                answer = await made.post(server.url, b"{}", {"X-More": "m"})
                assert answer.status == 200
                assert answer.body.startswith(b"hello ")
            assert len(server.links) == 2

    run(main())


def test_a_request_arrives_whole(run: Any) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def script(link: Link) -> None:
        while True:
            seen.append(await link.request())
            await link.send(whole(b"%d" % len(seen)))

    async def main() -> None:
        async with serving(script) as server, transport({"X-Key": "k"}) as made:
            await made.post(server.url, b"x" * 3_000_000, {"X-More": "m"})
            await made.post(server.url, b"")
        assert [len(one) for _, one in seen] == [3_000_000, 0]
        for line in (b"X-Key: k", b"X-More: m", b"Content-Length: 3000000"):
            assert b"\r\n%b\r\n" % line in seen[0][0]
        assert b"\r\nAccept-Encoding: identity\r\n" in seen[0][0]
        assert b"X-More" not in seen[1][0]

    run(main())


def test_what_is_only_asked_for_may_be_the_same_each_time(run: Any) -> None:
    heads: list[bytes] = []

    async def script(link: Link) -> None:
        heads.append(await link.reader.readuntil(b"\r\n\r\n"))
        await link.send(HELLO)
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport({"X-Key": "k"}) as made:
            for _ in range(3):
                assert (await made.get(server.url)).body == b"hello"
        assert len(heads) == 3
        assert heads[0].startswith(b"GET /v1 HTTP/1.1\r\n")
        assert b"\r\nX-Key: k\r\n" in heads[0]
        assert b"content-length" not in heads[0].lower()

    run(main())


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
        (OK + b"Content-Length: 9\r\n\r\nhello", ConnectionLost, "broke inside the answer"),
        (CHUNKED + b"5\r\nhello\r\n", ConnectionLost, "broke inside the answer"),
        (b"hello, client\r\n", ProtocolViolated, "its head is not one of HTTP/1.1"),
        (
            OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            ProtocolViolated,
            "its head is not one of HTTP/1.1",
        ),
        (CHUNKED + b"what\r\n", ProtocolViolated, "not one of HTTP/1.1"),
        (HELLO + b"\0", ProtocolViolated, "its head is not one of HTTP/1.1"),
        (OK + b"X: " + b"x" * 100_000, TooLarge, "its head is larger than allowed"),
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
            assert str(error) == "it sends or closes before it is asked"
            await server.all_gone()

    run(main())


def test_the_end_of_the_connection_ends_an_answer_without_length(run: Any) -> None:
    async def main() -> None:
        async with serving(sends(OK + b"\r\nhel", b"lo")) as server, transport() as made:
            for number in (1, 2):
                assert await said(made, server.url) == b"hello"
                assert len(server.links) == number

    run(main())


async def first_closes_at_its_second_request(link: Link) -> None:
    """The first connection closes as the second request comes: not one byte of an answer."""
    await link.request()
    await link.send(HELLO)
    await link.request()
    if link.index:
        await link.send(HELLO)


def test_a_kept_connection_that_was_closed_meanwhile(run: Any) -> None:
    async def main() -> None:
        async with serving(first_closes_at_its_second_request) as server, transport() as made:
            await made.post(server.url, b"{}")
            assert await said(made, server.url) == b"hello"
            assert len(server.links) == 2

    run(main())


def test_a_body_is_made_each_time_that_it_is_sent(run: Any) -> None:
    made_bodies: list[bytes] = []

    def make() -> bytes:
        made_bodies.append(b'{"made": %d}' % len(made_bodies))
        return made_bodies[-1]

    async def main() -> None:
        async with serving(first_closes_at_its_second_request) as server, transport() as made:
            await made.post(server.url, make)
            assert (await made.post(server.url, make)).body == b"hello"
            assert len(made_bodies) == 3
            assert len(server.links) == 2

    run(main())


def test_a_body_is_given_up_once_it_is_sent(run: Any) -> None:
    """Thousands of calls may wait for minutes, each with a conversation of a megabyte."""
    given_up = asyncio.Event()

    class Noticed(bytes):
        def __del__(self) -> None:
            given_up.set()

    async def script(link: Link) -> None:
        await link.request()
        await given_up.wait()
        await link.send(HELLO)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            answer = await made.post(server.url, lambda: Noticed(b"x" * 300_000))
            assert answer.body == b"hello"

    run(main())


def test_it_is_sent_again_once_and_only_before_an_answer(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        if link.index == 0:
            await link.send(HELLO)
            await link.request()
        elif link.index == 2:
            await link.send(HELLO)
            await link.request()
            await link.send(OK + b"Content-Length: 9\r\n\r\n")

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            await made.post(server.url, b"{}")
            # Closed, then closed again on the new connection.
            assert isinstance(await failure(made, server.url), ConnectionLost)
            assert len(server.links) == 2
            await made.post(server.url, b"{}")
            assert isinstance(await failure(made, server.url), ConnectionLost)
            assert len(server.links) == 3

    run(main())


def test_cancelling_closes_the_connection(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            task = asyncio.ensure_future(made.post(server.url, b"{}"))
            await settled(lambda: len(server.links) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.all_gone()

    run(main())


def test_cancelling_closes_what_the_endpoint_does_not_read(run: Any) -> None:
    """What is still to be sent is not: the connection of a hanging endpoint would stay for ever."""
    size = 30_000_000
    begun, cancelled = asyncio.Event(), asyncio.Event()
    come = 0

    async def script(link: Link) -> None:
        nonlocal come
        await link.reader.readuntil(b"\r\n\r\n")
        begun.set()
        await cancelled.wait()
        while piece := await link.reader.read(65536):
            come += len(piece)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            task = asyncio.ensure_future(made.post(server.url, b"x" * size))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled.set()
            await server.all_gone()
            assert come < size

    run(main())


def test_an_early_answer_is_not_the_next_requests_beginning(run: Any) -> None:
    """An endpoint that refuses a large body before it has read it."""
    refusal = b"HTTP/1.1 413 Large\r\nContent-Length: 2\r\n\r\nno"

    async def script(link: Link) -> None:
        if link.index == 0:
            await link.reader.readuntil(b"\r\n\r\n")
            await link.send(refusal)
            await link.gone()
        await hello(link)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert (await made.post(server.url, b"x" * 30_000_000)).status == 413
            assert await said(made, server.url) == b"hello"
            assert len(server.links) == 2

    run(main())


def test_more_connections_than_aiohttp_has_by_itself(run: Any) -> None:
    """Its limit of 100 would keep the others from ever being asked."""
    count = 300
    everybody = asyncio.Event()
    asked = 0

    async def script(link: Link) -> None:
        nonlocal asked
        _, body = await link.request()
        asked += 1
        if asked == count:
            everybody.set()
        await everybody.wait()
        await link.send(whole(body))

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            asks = [said(made, server.url, b"%d" % number) for number in range(count)]
            assert await asyncio.gather(*asks) == [b"%d" % number for number in range(count)]

    run(main())


def test_closing_ends_what_runs(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        if link.index:
            await link.send(OK + b"Content-Length: 9\r\n\r\nhel")
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            asks = [asyncio.ensure_future(made.post(server.url, b"{}")) for _ in range(2)]
            await settled(lambda: len(server.links) == 2)
            await asyncio.sleep(0.02)
            await made.close()
            ended = await asyncio.gather(*asks, return_exceptions=True)
            assert [type(one) for one in ended] == [ConnectionLost, ConnectionLost]
            assert isinstance(await failure(made, server.url), ConnectFailed)
            await server.all_gone()

    run(main())


def test_nobody_there(run: Any) -> None:
    port = free_port()

    async def main() -> None:
        async with transport() as made:
            for host in ("127.0.0.1", "localhost"):
                error = await failure(made, f"http://{host}:{port}")
                assert type(error) is ConnectFailed
                assert str(error) == "connection refused"
            error = await failure(made, "http://no-such-host.invalid")
            assert type(error) is ConnectFailed
            assert str(error) == "the host's name is not known"

    run(main())


def test_a_connection_that_is_not_made_in_time(run: Any) -> None:
    """TLS to a server that says nothing: the time for it includes the handshake."""

    async def main() -> None:
        async with serving(Link.gone) as server, transport(connect_timeout=0.1) as made:
            error = await failure(made, server.url.replace("http:", "https:"))
            assert type(error) is ConnectTimedOut
            assert str(error) == "no connection within 0.1 s"
            await server.all_gone()

    run(main())


def test_against_a_server_of_aiohttp(run: Any) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.query.get("stream"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for place in range(0, len(body), 7):
                await response.write(body[place : place + 7])
            return response
        return web.Response(body=body, status=int(request.query.get("status", "200")))

    async def main() -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/echo", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/echo"
        async with transport() as made:
            for size in (0, 1, 70_000, 2_000_000):
                assert await said(made, url, b"y" * size) == b"y" * size
            assert (await made.post(f"{url}?status=503", b"no")).status == 503
            async with made.stream(f"{url}?stream=1", b"z" * 1_000) as streamed:
                assert streamed.content_type == "text/event-stream"
                assert await streamed.read() == b"z" * 1_000
        await runner.cleanup()

    run(main())
