"""An endpoint or proxy that sends answers twice: no request gets the answer to another one."""

from __future__ import annotations

import asyncio
import itertools
import select
from typing import Any

import aiohttp
import pytest

from gymmesh_model.transport.client import HttpTransport
from tests.unit.model.transport.raw_server import (
    CHUNKED,
    Link,
    said,
    serving,
    settled,
    transport,
    whole,
)

CALLS = 300


def chunked(body: bytes) -> bytes:
    """The same in chunks."""
    return CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("answers", [whole, chunked])
def test_no_answer_is_another_ones(run: Any, answers: Any) -> None:
    """Each seventh answer of a connection comes twice at once."""

    async def script(link: Link) -> None:
        for number in itertools.count(1):
            _, body = await link.request()
            await link.send(answers(body) * (1 if number % 7 else 2))

    async def ask(made: HttpTransport, url: str, numbers: Any) -> None:
        for number in numbers:
            body = b"question %d" % number
            assert await said(made, url, body) == body

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            numbers = iter(range(CALLS))
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(ask(made, server.url, numbers))
            assert next(numbers, None) is None
            assert len(server.links) > 4, "the copies did close connections"

    run(main())


@pytest.mark.parametrize("cut", [9, 40])
def test_a_copy_that_comes_in_two_parts_is_nobodys_answer(run: Any, cut: int) -> None:
    """One before the next request and one after it, wherever it is cut."""
    second = asyncio.Event()

    async def script(link: Link) -> None:
        _, body = await link.request()
        await link.send(whole(body))
        if link.index == 0:
            await link.send(whole(body)[:cut])
            second.set()
            await link.request()
            await link.send(whole(body)[cut:])
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert await said(made, server.url, b"first question") == b"first question"
            await second.wait()
            for _ in range(100):  # the loop reads what has come
                await asyncio.sleep(0)
            assert await said(made, server.url, b"second question") == b"second question"
            assert len(server.links) == 2

    run(main())


def test_an_endpoint_may_say_the_same_to_everybody(run: Any) -> None:
    """It is asked once for each answer, over one connection."""
    asked = 0

    async def script(link: Link) -> None:
        nonlocal asked
        while True:
            await link.request()
            asked += 1
            await link.send(whole(b"always"))

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for _ in range(10):
                assert await said(made, server.url) == b"always"
            assert asked == 10
            assert len(server.links) == 1

    run(main())


def test_what_waits_in_the_socket_is_seen_before_a_request_is_sent(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two turns of the event loop a copy may lie in the socket, not read yet."""
    copy = asyncio.Event()
    connections: list[asyncio.Transport] = []
    connect = aiohttp.BaseConnector.connect

    async def connect_and_note(*given: Any) -> Any:
        connection = await connect(*given)
        assert connection.transport is not None
        connections.append(connection.transport)
        return connection

    async def script(link: Link) -> None:
        await link.request()
        await link.send(whole(b"first"))
        if link.index == 0:
            await copy.wait()
            await link.send(whole(b"first"))
        await link.gone()

    async def main() -> None:
        monkeypatch.setattr(aiohttp.BaseConnector, "connect", connect_and_note)
        async with serving(script) as server, transport() as made:
            assert await said(made, server.url, b"1") == b"first"
            connections[0].pause_reading()  # the loop does not look
            copy.set()
            descriptor = connections[0].get_extra_info("socket").fileno()
            await settled(lambda: bool(select.select([descriptor], [], [], 0)[0]))
            assert await said(made, server.url, b"2") == b"first"
            assert len(server.links) == 2

    run(main())
