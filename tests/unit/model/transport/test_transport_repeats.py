"""An endpoint or proxy that sends answers twice: no request gets the answer to another one."""

from __future__ import annotations

import asyncio
import itertools
import select
from typing import Any

import pytest

from gymmesh_model.transport.client import HttpTransport
from tests.unit.model.transport.raw_server import (
    CHUNKED,
    Link,
    Script,
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


def doubling(every: int, answers: Any, later: float | None) -> Script:
    """Answers a request with its own body, and each `every`-th time twice.

    later: seconds until the copy, while further requests are answered; None is at once.
    """

    async def script(link: Link) -> None:
        copies: set[asyncio.Task[None]] = set()

        async def copy(answer: bytes) -> None:
            await asyncio.sleep(later or 0.0)
            await link.send(answer)

        try:
            for number in itertools.count(1):
                _, body = await link.request()
                answer = answers(body)
                await link.send(answer)
                if number % every:
                    continue
                if later is None:
                    await link.send(answer)
                else:
                    copies.add(asyncio.ensure_future(copy(answer)))
        finally:
            for task in copies:
                task.cancel()

    return script


@pytest.mark.parametrize("later", [None, 0.0, 0.002])
@pytest.mark.parametrize("answers", [whole, chunked])
def test_no_answer_is_another_ones(run: Any, answers: Any, later: float | None) -> None:
    async def ask(made: HttpTransport, url: str, numbers: Any) -> None:
        for number in numbers:
            body = b"question %d" % number
            assert await said(made, url, body) == body

    async def main() -> None:
        async with serving(doubling(7, answers, later)) as server, transport() as made:
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


def test_a_copy_in_place_of_an_answer_is_asked_again(run: Any) -> None:
    async def script(link: Link) -> None:
        while True:
            _, body = await link.request()
            # The first connection is one answer behind.
            await link.send(whole(b"1" if link.index == 0 else body))

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert await said(made, server.url, b"1") == b"1"
            assert await said(made, server.url, b"2") == b"2"
            assert len(server.links) == 2

    run(main())


def test_an_endpoint_may_say_the_same_to_everybody(run: Any) -> None:
    """It is asked once more for each of its answers, and never again."""
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
            assert asked == 11
            # Each connection is closed after a repeat, which might have been a copy.
            assert len(server.links) == 6

    run(main())


def test_a_refusal_that_comes_twice_is_not_asked_again_but_closes(run: Any) -> None:
    refusal = b"HTTP/1.1 429 Slow\r\nContent-Length: 2\r\n\r\n{}"

    async def script(link: Link) -> None:
        while True:
            await link.request()
            await link.send(refusal)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for _ in range(4):
                assert (await made.post(server.url, b"{}")).status == 429
            assert len(server.links) == 2

    run(main())


def test_what_waits_in_the_socket_is_seen_before_a_request_is_sent(run: Any) -> None:
    """Between two turns of the event loop a copy may lie in the socket, not read yet."""
    copy = asyncio.Event()

    async def script(link: Link) -> None:
        await link.request()
        await link.send(whole(b"first"))
        if link.index == 0:
            await copy.wait()
            await link.send(whole(b"first"))
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            assert await said(made, server.url, b"1") == b"first"
            connector: Any = made._kept.connector
            [[(protocol, _)]] = connector._conns.values()
            protocol.transport.pause_reading()  # the loop does not look
            copy.set()
            descriptor = protocol.transport.get_extra_info("socket").fileno()
            await settled(lambda: bool(select.select([descriptor], [], [], 0)[0]))
            assert await said(made, server.url, b"2") == b"first"
            assert len(server.links) == 2

    run(main())
