"""Every answer of the data file, over a socket, to whatever client there is."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from gymmesh_model.backends.proxied import ProxiedTransport
from gymmesh_model.backends.transport import DirectTransport, Transport
from gymmesh_model.http1 import Client, Http1Error, ProtocolViolated, TooLarge
from gymmesh_model.http1.parser import Parser
from tests.unit.model.http1.answers import Row, answers
from tests.unit.model.http1.raw_server import CHUNKED, Link, serving

ROWS = answers()
MAX_BODY, MAX_HEAD = 1_000, 2_000
KINDS = {"refused": ProtocolViolated, "too large": TooLarge}


@contextlib.asynccontextmanager
async def transport(kind: str) -> AsyncIterator[Transport]:
    made: Transport
    if kind == "direct":
        made = DirectTransport({}, Client(max_body=MAX_BODY, max_head=MAX_HEAD))
    else:
        made = ProxiedTransport({}, 10, 5.0)
    try:
        yield made
    finally:
        await made.close()


async def outcome(made: Transport, url: str) -> tuple[int, bytes] | Http1Error:
    try:
        answer = await made.post(url, b"{}", None)
    except Http1Error as error:
        return error
    return answer.status, answer.body


def sending(rows: list[Row], *, ends: bool) -> Any:
    """Sends the answers one after the other, each on a connection of its own.

    ends: whether the server closes afterwards, or leaves the client to find out by itself.
    """
    numbers = itertools.count()

    async def script(link: Link) -> None:
        row = rows[next(numbers)]
        await link.request()
        with contextlib.suppress(ConnectionError):
            await link.send(row.sent)
        if not ends:
            await link.gone()

    return script


def test_each_is_decided_at_once(run: Any) -> None:
    """Though the connection stays open: a client that waits for more would hang here."""

    async def main() -> None:
        for row in ROWS:
            async with (
                serving(sending([row], ends=False)) as server,
                transport("direct") as made,
            ):
                said = await outcome(made, server.url)
                if row.outcome == "answer":
                    assert said == (row.status, row.body.encode("latin-1")), row.name
                else:
                    assert type(said) is KINDS[row.outcome], row.name

    run(main())


async def test_through_aiohttp_each_is_an_answer_or_a_typed_failure() -> None:
    """It is laxer in places and stricter in others; what it reads of a good one is the same."""
    read = 0
    async with asyncio.timeout(60), transport("proxied") as made:
        for row in ROWS:
            async with serving(sending([row], ends=True)) as server:
                said = await outcome(made, server.url)
            if row.outcome == "answer" and isinstance(said, tuple):
                assert said == (row.status, row.body.encode("latin-1")), row.name
                read += 1
    assert read > 15


def test_chunks_of_one_byte_take_time_in_proportion() -> None:
    """Counted in bytes copied: reading from a place in the data copies each byte once or twice."""
    count = 100_000
    data = CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n"

    class Counted(bytes):
        copied = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            Counted.copied += len(found) if isinstance(found, bytes) else 1
            return found

    parser = Parser(2 * count)
    parser.feed(Counted(data))
    assert parser.done
    assert b"".join(parser.pieces) == b"x" * count
    assert len(parser.pieces) == 1
    assert Counted.copied <= 2 * len(data)
