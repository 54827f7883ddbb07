"""Streamed answers: what comes is there at once, and a slow reader is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymmesh_model.http1 import ConnectionLost, ProtocolViolated, Target
from tests.unit.model.http1.raw_server import (
    CHUNKED,
    OK,
    Link,
    client,
    sends,
    serving,
    settled,
)


def test_a_streamed_answer_comes_as_it_is_sent(run: Any) -> None:
    async def main() -> None:
        taken = asyncio.Semaphore(0)

        async def script(link: Link) -> None:
            await link.request()
            await link.send(CHUNKED)
            for number in range(3):
                # Nothing is sent before what came earlier has been read.
                await taken.acquire()
                await link.send(b"1\r\n%d\r\n" % number)
            await link.send(b"0\r\n\r\n")
            await link.gone()

        async with serving(script) as server, client() as made:
            for _ in range(2):
                got = []
                async with await made.stream(Target(server.url), b"{}") as answer:
                    assert answer.head.status == 200
                    taken.release()
                    async for piece in answer:
                        got.append(piece)
                        if len(got) < 3:
                            taken.release()
                assert got == [b"0", b"1", b"2"]
            # Each has a connection of its own: none can begin with the end of another.
            assert len(server.links) == 2
            assert made.connections == 0

    run(main())


def test_a_stream_that_is_left_is_closed(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(CHUNKED + b"1\r\nx\r\n")
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, client() as made:
            async with await made.stream(Target(server.url), b"{}") as answer:
                async for piece in answer:
                    assert piece == b"x"
                    break
            assert made.connections == 0
            await server.all_gone()

            async def read() -> None:
                async with await made.stream(Target(server.url), b"{}") as again:
                    await again.read()

            task = asyncio.ensure_future(read())
            await settled(lambda: len(server.links) == 2)
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.all_gone()
            assert made.connections == 0

    run(main())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (CHUNKED + b"1\r\nx\r\n", ConnectionLost),
        (CHUNKED + b"1\r\nx\r\nno\r\n", ProtocolViolated),
    ],
)
def test_a_stream_that_breaks_gives_what_came_and_fails(run: Any, raw: bytes, kind: Any) -> None:
    async def main() -> None:
        async with serving(sends(raw)) as server, client() as made:
            got = []

            async def read() -> None:
                async with await made.stream(Target(server.url), b"{}") as answer:
                    async for piece in answer:
                        got.append(piece)

            with pytest.raises(kind):
                await read()
            assert got == [b"x"]
            assert made.connections == 0

    run(main())


def test_a_slow_reader_stops_the_sender(run: Any) -> None:
    total = 60_000_000
    sent = 0

    async def script(link: Link) -> None:
        nonlocal sent
        await link.request()
        await link.send(OK + b"Content-Length: %d\r\n\r\n" % total)
        while sent < total:
            await link.send(b"x" * 100_000)
            sent += 100_000

    async def main() -> None:
        async with (
            serving(script) as server,
            client() as made,
            await made.stream(Target(server.url), b"{}") as answer,
        ):
            before = -1
            while before != sent:  # until nothing moves any more
                before = sent
                await asyncio.sleep(0.1)
            assert sent < total
            assert len(await answer.read()) == total

    run(main())
