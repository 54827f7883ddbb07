"""Transforms bytes with a function that reads and writes files, in a thread, piece by piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import IO, Final

_PIECE_BYTES: Final = 1 << 18


async def transformed(
    pieces: AsyncIterator[bytes], work: Callable[[IO[bytes], IO[bytes]], None]
) -> AsyncIterator[bytes]:
    """The output that `work` writes to its second file, from the input in its first file.

    Raises what `work` raises, when it has ended.
    """
    source, feed = os.pipe()
    result, sink = os.pipe()

    def run() -> None:
        # A broken pipe: nobody reads on.
        with suppress(BrokenPipeError), open(source, "rb") as file, open(sink, "wb") as written:
            work(file, written)

    async def pump() -> None:
        try:
            with suppress(BrokenPipeError):  # the work needs no more
                async for piece in pieces:
                    await asyncio.to_thread(_write, feed, piece)
        finally:
            os.close(feed)

    working = asyncio.ensure_future(asyncio.to_thread(run))
    pumping = asyncio.ensure_future(pump())
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(asyncio.to_thread(os.read, result, _PIECE_BYTES))
            piece = await asyncio.shield(reading)
            if not piece:
                break
            yield piece
        await pumping
        await working
    finally:
        pumping.cancel()
        await asyncio.wait((pumping,))
        if reading is not None:
            await asyncio.wait((reading,))
        os.close(result)
        await asyncio.wait((working,))


def _write(number: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(number, view) :]
