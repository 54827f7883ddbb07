"""The client against servers that answer, fail and mislead, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from aiohttp import web

from gymmesh_model.http1 import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
    ProtocolViolated,
    Target,
    TooLarge,
)
from tests.unit.model.http1.raw_server import (
    CHUNKED,
    HELLO,
    OK,
    Link,
    client,
    failure,
    hello,
    sends,
    serving,
    settled,
    whole,
)


def test_connections_are_kept_and_the_last_is_used_first(run: Any) -> None:
    async def main() -> None:
        async with serving(hello) as server, client() as made:
            target = Target(server.url, {"X-Key": "k"})
            both = await asyncio.gather(made.ask(target, b"1"), made.ask(target, b"22"))
            assert [answer.body for answer in both] == [b"hello", b"hello"]
            for number in range(1, 6):
                answer = await made.ask(target, b"{}", {"X-More": "m"})
                assert (answer.head.status, answer.body) == (200, b"hello %d" % number)
            assert made.connections == len(server.links) == 2

    run(main())


def test_a_request_arrives_whole(run: Any) -> None:
    async def main() -> None:
        seen: list[tuple[bytes, bytes]] = []

        async def script(link: Link) -> None:
            while True:
                seen.append(await link.request())
                await link.send(whole(b"%d" % len(seen)))

        async with serving(script) as server, client() as made:
            target = Target(server.url, {"X-Key": "k"})
            body = b"x" * 3_000_000
            await made.ask(target, body, {"X-More": "m"})
            await made.ask(target)
        assert [len(one) for _, one in seen] == [len(body), 0]
        assert b"\r\nX-Key: k\r\nX-More: m\r\nContent-Length: 3000000\r\n\r\n" in seen[0][0]
        assert b"X-More" not in seen[1][0]

    run(main())


def test_a_large_answer_comes_whole(run: Any) -> None:
    body = bytes(range(256)) * 20_000

    async def main() -> None:
        async with serving(sends(whole(body))) as server, client() as made:
            assert (await made.ask(Target(server.url), b"{}")).body == body

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
        async with serving(script) as server, client() as made:
            for number in range(2):
                assert (await made.ask(Target(server.url), b"{}")).body == b"hell%d" % number
            assert len(server.links) == 1

    run(main())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", ConnectionLost),
        (b"HTT", ConnectionLost),
        (OK, ConnectionLost),
        (OK + b"Content-Length: 9\r\n\r\nhello", ConnectionLost),
        (CHUNKED + b"5\r\nhello\r\n", ConnectionLost),
        (b"hello, client\r\n", ProtocolViolated),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", ProtocolViolated),
        (CHUNKED + b"what\r\n", ProtocolViolated),
        (OK + b"X: " + b"x" * 100_000, TooLarge),
        (OK + b"Content-Length: 999999999999\r\n\r\n", TooLarge),
    ],
)
def test_what_is_no_answer_is_a_typed_failure(run: Any, raw: bytes, kind: Any) -> None:
    async def main() -> None:
        async with serving(sends(raw)) as server, client() as made:
            error = await failure(made, Target(server.url), resend=True)
            assert type(error) is kind
            if isinstance(error, ConnectionLost):
                assert error.untouched == (raw == b"")
                assert error.head == (len(raw) > len(OK))
            assert len(server.links) == 1
            assert made.connections == 0

    run(main())


@pytest.mark.parametrize("raw", [b"", OK + b"Content-Length: 9\r\n\r\nhello"])
def test_a_reset_is_a_lost_connection(run: Any, raw: bytes) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(raw)
        link.reset()

    async def main() -> None:
        async with serving(script) as server, client() as made:
            error = await failure(made, Target(server.url))
            assert isinstance(error, ConnectionLost)
            async with serving(hello) as good:
                assert (await made.ask(Target(good.url), b"{}")).body == b"hello"

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        HELLO + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
        HELLO + b"\0",
    ],
    ids=["close", "HTTP/1.0", "a second answer", "garbage"],
)
def test_such_a_connection_is_not_used_again(run: Any, raw: bytes) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(raw)
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, client() as made:
            for number in (1, 2):
                assert (await made.ask(Target(server.url), b"{}")).body == b"hello"
                assert len(server.links) == number
                assert made.connections == 0
            await server.all_gone()

    run(main())


def test_what_comes_unasked_closes_the_connection(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(HELLO)
        if link.index == 0:
            await asyncio.sleep(0.05)
            await link.send(OK + b"Content-Length: 3\r\n\r\nbad")
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, client() as made:
            target = Target(server.url)
            assert (await made.ask(target, b"{}")).body == b"hello"
            await settled(lambda: made.connections == 0)
            assert (await made.ask(target, b"{}")).body == b"hello"

    run(main())


def test_the_end_of_the_connection_ends_an_answer_without_length(run: Any) -> None:
    async def main() -> None:
        async with serving(sends(OK + b"\r\nhel", b"lo")) as server, client() as made:
            assert (await made.ask(Target(server.url), b"{}")).body == b"hello"
            assert made.connections == 0

    run(main())


async def first_closes_at_its_second_request(link: Link) -> None:
    """The first connection closes as the second request comes: not one byte of an answer."""
    await link.request()
    await link.send(HELLO)
    await link.request()
    if link.index:
        await link.send(HELLO)


@pytest.mark.parametrize("resend", [True, False])
def test_a_kept_connection_that_was_closed_meanwhile(run: Any, resend: bool) -> None:
    async def main() -> None:
        async with serving(first_closes_at_its_second_request) as server, client() as made:
            target = Target(server.url)
            await made.ask(target, b"{}")
            if resend:
                assert (await made.ask(target, b"{}", resend=True)).body == b"hello"
                assert len(server.links) == 2
            else:
                error = await failure(made, target)
                assert isinstance(error, ConnectionLost)
                assert len(server.links) == 1

    run(main())


def test_a_body_is_made_each_time_that_it_is_sent(run: Any) -> None:
    made_bodies: list[bytes] = []

    def make() -> bytes:
        made_bodies.append(b'{"made": %d}' % len(made_bodies))
        return made_bodies[-1]

    async def main() -> None:
        async with serving(first_closes_at_its_second_request) as server, client() as made:
            target = Target(server.url)
            await made.ask(target, make)
            assert (await made.ask(target, make, resend=True)).body == b"hello"
            assert len(made_bodies) == 3
            assert len(server.links) == 2

    run(main())


def test_it_is_resent_once_and_only_before_the_first_byte(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        if link.index == 0:
            await link.send(HELLO)
            await link.request()
        elif link.index == 2:
            await link.send(HELLO)
            await link.request()
            await link.send(b"H")

    async def main() -> None:
        async with serving(script) as server, client() as made:
            target = Target(server.url)
            await made.ask(target, b"{}", resend=True)
            # Closed, then closed again on the new connection.
            error = await failure(made, target, resend=True)
            assert isinstance(error, ConnectionLost)
            assert len(server.links) == 2
            await made.ask(target, b"{}", resend=True)
            error = await failure(made, target, resend=True)
            assert isinstance(error, ConnectionLost)
            assert not error.untouched
            assert len(server.links) == 3

    run(main())


def test_cancelling_closes_the_connection_and_frees_its_place(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        if link.index == 0:
            await link.gone()
        await link.send(HELLO)

    async def main() -> None:
        async with serving(script) as server, client(limit=1) as made:
            target = Target(server.url)
            task = asyncio.ensure_future(made.ask(target, b"{}"))
            await settled(lambda: len(server.links) == 1)
            second = asyncio.ensure_future(made.ask(target, b"{}"))
            gives_up = asyncio.ensure_future(made.ask(target, b"{}"))
            await asyncio.sleep(0.02)
            gives_up.cancel()
            task.cancel()
            assert (await second).body == b"hello"
            await server.all_gone()
            with pytest.raises(asyncio.CancelledError):
                await gives_up

    run(main())


def test_more_requests_than_connections_wait_in_line(run: Any) -> None:
    order: list[bytes] = []

    async def script(link: Link) -> None:
        while True:
            _, body = await link.request()
            order.append(body)
            await asyncio.sleep(0.001)
            # Every third connection ends with its answer.
            await link.send(whole(body))
            if len(order) % 3 == 0:
                return

    async def main() -> None:
        async with serving(script) as server, client(limit=2) as made:
            target = Target(server.url)
            asks = [made.ask(target, b"%d" % number, resend=True) for number in range(20)]
            answers = await asyncio.gather(*asks)
            assert [answer.body for answer in answers] == [b"%d" % number for number in range(20)]
            assert made.connections <= 2
            assert len(order) == len(set(order)) == 20

    run(main())


def test_idle_connections_are_closed(run: Any) -> None:
    async def main() -> None:
        async with serving(hello) as server, client(idle_timeout=0.05) as made:
            target = Target(server.url)
            await asyncio.gather(*(made.ask(target, b"{}") for _ in range(3)))
            await server.all_gone()
            assert made.connections == 0
            assert (await made.ask(target, b"{}")).body == b"hello"

    run(main())


def test_closing_ends_what_runs_and_what_waits(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, client(limit=1) as made:
            target = Target(server.url)
            asks = [asyncio.ensure_future(made.ask(target, b"{}")) for _ in range(2)]
            await settled(lambda: len(server.links) == 1)
            await made.close()
            ended = await asyncio.gather(*asks, return_exceptions=True)
            assert [type(one) for one in ended] == [ConnectionLost, ConnectFailed]
            assert isinstance(await failure(made, target), ConnectFailed)

    run(main())


def test_nobody_there(run: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def main() -> None:
        async with client() as made:
            for host in ("127.0.0.1", "localhost"):
                error = await failure(made, Target(f"http://{host}:{port}"))
                assert type(error) is ConnectFailed
                assert str(error) == "connection refused"
            error = await failure(made, Target("http://no-such-host.invalid"))
            assert type(error) is ConnectFailed
            assert made.connections == 0

    run(main())


def test_a_connection_that_is_not_made_in_time(run: Any) -> None:
    """TLS to a server that says nothing: the time for it includes the handshake."""

    async def main() -> None:
        async with serving(Link.gone) as server, client(connect_timeout=0.1) as made:
            target = Target(server.url.replace("http:", "https:"))
            error = await failure(made, target)
            assert type(error) is ConnectTimedOut
            assert made.connections == 0
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
        async with client() as made:
            for size in (0, 1, 70_000, 2_000_000):
                body = b"y" * size
                answer = await made.ask(Target(url), body)
                assert answer.body == body
                assert answer.head.keeps
            assert (await made.ask(Target(f"{url}?status=503"), b"no")).head.status == 503
            assert (await made.ask(Target(url, method="HEAD"))).body == b""
            async with await made.stream(Target(f"{url}?stream=1"), b"z" * 1_000) as streamed:
                assert streamed.head.content_type == "text/event-stream"
                assert await streamed.read() == b"z" * 1_000
            assert made.connections == 1
        await runner.cleanup()

    run(main())
