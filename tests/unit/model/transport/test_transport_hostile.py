"""Every answer of the data file, over a socket: what aiohttp makes of it, and where it differs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gymmesh_model.transport import (
    ConnectionLost,
    ProtocolViolated,
    TooLarge,
    TransportError,
)
from gymmesh_model.transport.client import HttpTransport
from tests.unit.model.transport.answers import Row, answers
from tests.unit.model.transport.raw_server import (
    CHUNKED,
    OK,
    Link,
    Script,
    sends,
    serving,
    settled,
    transport,
)

MAX_BODY, MAX_HEAD = 1_000, 2_000
KINDS = {"refused": ProtocolViolated, "too large": TooLarge}

# Where aiohttp's parser of answers is laxer than RFC 9112: it reads what a stricter one refuses.
# None lets an answer run into the next: whatever follows its end closes the connection.
READ_ALL_THE_SAME = {
    "blank line first": (200, b""),
    "blank before the colon": (200, b"hello"),
    "folded line": (200, b"hello"),
    "bare line feed": (200, b"hello"),
    "bare line feeds alone": (200, b"hello"),
    "bare line feed at the end of the head": (200, b"hello"),
    "bare line feed in trailers": (200, b""),
    "delete": (200, b""),
    "33 interim answers": (200, b"x"),
    "extensions without end": (200, b"x" * 60),
}
# Where it is stricter: a blank after a chunk's size, a Content-Length among the trailers.
REFUSED_ALL_THE_SAME = {"chunk extensions", "trailers"}
# Where it goes on reading: what comes is bounded, and so is the time of the call.
READ_ON = {
    "bare line feed after the status",
    "chunks in HTTP/1.0",
    "chunk",
    "huge chunk",
    "chunks together",
    "chunk extension",
    "finished chunk extension",
    "interim answers without end",
    "interim answers as deep as a stack",
}
# It waits for the end of the connection, since there is no length.
WAITS = READ_ON | {"blank line first", "folded line", "delete"}


def sending(row: Row, *, ends: bool) -> Script:
    """Sends the answer. ends: whether the server closes then, or leaves it to the client."""

    async def script(link: Link) -> None:
        await link.request()
        with contextlib.suppress(ConnectionError):
            await link.send(row.sent)
        if not ends:
            await link.gone()

    return script


async def outcome(made: HttpTransport, url: str) -> tuple[int, bytes] | type[TransportError]:
    try:
        answer = await made.post(url, b"{}")
    except TransportError as error:
        return type(error)
    return answer.status, answer.body


def expected(row: Row) -> tuple[int, bytes] | type[TransportError]:
    if row.name in READ_ALL_THE_SAME:
        return READ_ALL_THE_SAME[row.name]
    if row.outcome == "answer" and row.name in REFUSED_ALL_THE_SAME:
        return ProtocolViolated
    if row.name in READ_ON:
        return ConnectionLost
    if row.outcome == "answer":
        return row.status, row.body.encode("latin-1")
    return KINDS[row.outcome]


@pytest.mark.parametrize("row", answers(), ids=lambda row: row.name)
def test_each_is_an_answer_or_a_typed_failure(run: Any, row: Row) -> None:
    """With a server that leaves it to the client where the client can decide by itself."""

    async def main() -> None:
        async with (
            serving(sending(row, ends=row.name in WAITS)) as server,
            transport(max_body=MAX_BODY, max_head=MAX_HEAD) as made,
        ):
            assert await outcome(made, server.url) == expected(row)

    run(main())


def test_the_differences_are_rows_of_the_file() -> None:
    good = {row.name for row in answers() if row.outcome == "answer"}
    bad = {row.name for row in answers() if row.outcome != "answer"}
    assert good >= REFUSED_ALL_THE_SAME
    assert bad >= READ_ON | set(READ_ALL_THE_SAME)


def test_more_headers_than_may_be_are_too_large(run: Any) -> None:
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(200))

    async def main() -> None:
        script = sends(OK + lines + b"Content-Length: 0\r\n\r\n")
        async with serving(script) as server, transport() as made:
            assert await outcome(made, server.url) is TooLarge

    run(main())


def test_what_comes_without_end_is_given_up_at_its_bound(run: Any) -> None:
    """The body is in chunks and never ends: no more than its bound is ever held."""

    async def script(link: Link) -> None:
        await link.request()
        await link.send(CHUNKED)
        while True:
            await link.send(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async def main() -> None:
        async with serving(script) as server, transport(max_body=100_000) as made:
            assert await outcome(made, server.url) is TooLarge
            await server.all_gone()

    run(main())


def test_interim_answers_without_end_leave_the_loop_to_others(run: Any) -> None:
    """Only the call's time limit ends them; until then all else goes on."""

    async def script(link: Link) -> None:
        await link.request()
        while True:
            await link.send(b"HTTP/1.1 103 Hints\r\n\r\n" * 100)

    async def main() -> None:
        async with serving(script) as server, transport() as made:
            task = asyncio.ensure_future(outcome(made, server.url))
            await settled(lambda: bool(server.links))
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.all_gone()

    run(main())


def test_chunks_of_one_byte_are_read(run: Any) -> None:
    count = 100_000

    async def main() -> None:
        script = sends(CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
        async with serving(script) as server, transport() as made:
            assert await outcome(made, server.url) == (200, b"x" * count)

    run(main())
