"""Streamed answers: what comes is there at once, and a slow reader is waited for."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from gymmesh_model.transport import ConnectionLost, ProtocolViolated
from tests.unit.model.transport.raw_server import (
    CHUNKED,
    OK,
    Link,
    said,
    sends,
    serving,
    settled,
    transport,
)


def test_a_streamed_answer_comes_as_it_is_sent(run: Any) -> None:
    async def main() -> None:
        taken = asyncio.Semaphore(0)

        async def script(link: Link) -> None:
            while True:
                await link.request()
                await link.send(CHUNKED)
                for number in range(3):
                    # Nothing is sent before what came earlier has been read.
                    await taken.acquire()
                    await link.send(b"1\r\n%d\r\n" % number)
                await link.send(b"0\r\n\r\n")

        async with serving(script) as server, transport() as made:
            for _ in range(2):
                got = []
                async with made.stream(server.url, b"{}") as answer:
                    assert answer.status == 200
                    taken.release()
                    async for piece in answer.pieces():
                        got.append(piece)
                        if len(got) < 3:
                            taken.release()
                assert got == [b"0", b"1", b"2"]
            assert len(server.links) == 1

    run(main())


async def streams(link: Link) -> None:
    """Answers every request by a stream, whose end comes a little after its last event."""
    for number in itertools.count():
        await link.request()
        await link.send(CHUNKED + b"5\r\n%05d\r\n" % number, b"0\r\n\r\n")


def test_streamed_calls_use_kept_connections(run: Any) -> None:
    async def main() -> None:
        async with serving(streams) as server, transport() as made:
            for number in range(10):
                async with made.stream(server.url, b"{}") as answer:
                    assert await answer.read() == b"%05d" % number
            assert len(server.links) == 1

    run(main())


def test_a_stream_left_at_its_last_event_keeps_its_connection_once_it_has_ended(run: Any) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def script(link: Link) -> None:
        await link.request()
        await link.send(CHUNKED + b"4\r\nlast\r\n")
        await left.wait()
        await link.send(b"0\r\n\r\n")
        ended.set()
        await streams(link)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            async with made.stream(server.url, b"{}") as answer:
                assert await anext(answer.pieces()) == b"last"
            left.set()
            await ended.wait()
            for _ in range(100):  # the loop reads what has come
                await asyncio.sleep(0)
            assert await said(made, server.url) == b"00000"
            assert len(server.links) == 1

    run(main())


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced(run: Any) -> None:
    """The first connection closes as the second request comes: not one byte of an answer."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(CHUNKED + b"1\r\nx\r\n0\r\n\r\n")
        await link.request()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for connections in (1, 2):
                async with made.stream(server.url, b"{}") as answer:
                    assert await answer.read() == b"x"
                assert len(server.links) == connections

    run(main())


@pytest.mark.parametrize("later", [False, True])
def test_a_stream_that_comes_twice_is_not_the_next_answer(run: Any, later: bool) -> None:
    """Its copy comes with it, or later."""
    copy, sent = asyncio.Event(), asyncio.Event()

    async def script(link: Link) -> None:
        _, body = await link.request()
        answer = CHUNKED + b"1\r\n%b\r\n0\r\n\r\n" % body
        await link.send(answer if later else answer * 2)
        await copy.wait()
        if later:
            await link.send(answer)
        sent.set()
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            for number in range(4):
                copy.clear()
                sent.clear()
                async with made.stream(server.url, b"%d" % number) as streamed:
                    assert await streamed.read() == b"%d" % number
                copy.set()
                await sent.wait()
                assert len(server.links) == number + 1

    run(main())


def test_a_stream_that_is_left_is_closed(run: Any) -> None:
    async def script(link: Link) -> None:
        await link.request()
        await link.send(CHUNKED + b"1\r\nx\r\n")
        await link.gone()

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            async with made.stream(server.url, b"{}") as answer:
                async for piece in answer.pieces():
                    assert piece == b"x"
                    break
            await server.all_gone()

            async def read() -> None:
                async with made.stream(server.url, b"{}") as again:
                    await again.read()

            task = asyncio.ensure_future(read())
            await settled(lambda: len(server.links) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.all_gone()

    run(main())


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (CHUNKED + b"1\r\nx\r\n", ConnectionLost),
        (CHUNKED + b"1\r\nx\r\nno\r\n", ProtocolViolated),
    ],
)
def test_a_stream_that_breaks_fails(run: Any, raw: bytes, kind: Any) -> None:
    async def main() -> None:
        async with serving(sends(raw)) as server, transport() as made:
            got: list[bytes] = []

            async def read() -> None:
                async with made.stream(server.url, b"{}") as answer:
                    async for piece in answer.pieces():
                        got.append(piece)

            with pytest.raises(kind):
                await read()
            # What came with the break itself may be lost with it.
            assert got in ([b"x"], [])

    run(main())


def test_a_reset_does_not_end_a_stream_without_length(run: Any) -> None:
    """Its end is the connection's, so one that breaks must not be taken for whole."""
    read = asyncio.Event()

    async def script(link: Link) -> None:
        await link.request()
        await link.send(OK + b"\r\nhello")
        await read.wait()
        link.reset()

    async def main() -> None:
        async with (
            serving(script) as server,
            transport() as made,
            made.stream(server.url, b"{}") as answer,
        ):
            pieces = answer.pieces()
            assert await anext(pieces) == b"hello"
            read.set()
            with pytest.raises(ConnectionLost, match="broke during"):
                await anext(pieces)

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
            transport() as made,
            made.stream(server.url, b"{}") as answer,
        ):
            before = -1
            while before != sent:  # until nothing moves any more
                before = sent
                await asyncio.sleep(0.1)
            assert sent < total
            assert len(await answer.read()) == total

    run(main())
