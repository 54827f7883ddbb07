"""The transport against servers that answer, fail and mislead, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from gymmesh_model.transport import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimedOut,
)
from tests.support.ports import free_port
from tests.unit.model.transport.raw_server import (
    HELLO,
    OK,
    Link,
    failure,
    hello,
    said,
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


def test_a_get_has_no_body_and_uses_a_kept_connection(run: Any) -> None:
    heads: list[bytes] = []

    async def script(link: Link) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                heads.append(await link.reader.readuntil(b"\r\n\r\n"))
                await link.send(HELLO)

    async def main() -> None:
        async with serving(script) as server, transport({"X-Key": "k"}) as made:
            for _ in range(3):
                assert (await made.get(server.url)).body == b"hello"
            assert len(server.links) == 1
        assert len(heads) == 3
        assert heads[0].startswith(b"GET /v1 HTTP/1.1\r\n")
        assert b"\r\nX-Key: k\r\n" in heads[0]
        assert b"content-length" not in heads[0].lower()

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
            assert str(error) == "the host name cannot be resolved"

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
