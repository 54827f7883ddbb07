"""A TCP proxy that delays, loses, cuts, goes silent and refuses, as told."""

from __future__ import annotations

import asyncio
import contextlib
import random

_CHUNK = 16_384
# What a lost segment costs a TCP connection: the sender's wait before it sends it again.
_RESENT_S = (0.2, 0.6)


class Wire:
    """Forwards connections to an address; an async context manager.

    Attributes:
        delay_s: seconds that each chunk is late.
        loss: the share of chunks that are late by a retransmission, as on a wire that loses.
        refuse: whether new connections are reset.
    """

    def __init__(self, host: str, port: int, to_host: str, to_port: int) -> None:
        self.host, self.port = host, port
        self.delay_s = 0.0
        self.loss = 0.0
        self.refuse = False
        self._to = (to_host, to_port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        """Resets every connection, with whatever was half sent."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()

    def mute(self) -> None:
        """Half-open: connections stay, and nothing passes until `heal`."""
        self._open.clear()

    def heal(self) -> None:
        """Everything passes again, what was held back first."""
        self.delay_s, self.loss, self.refuse = 0.0, 0.0, False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(5.0):
                there, back = await asyncio.open_connection(*self._to)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink, (writer, back)))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._pass()
                sink.write(data)
                await sink.drain()
        for writer in pair:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _pass(self) -> None:
        late = self.delay_s
        if self.loss and random.random() < self.loss:
            late += random.uniform(*_RESENT_S)
        if late:
            await asyncio.sleep(late)
        await self._open.wait()
