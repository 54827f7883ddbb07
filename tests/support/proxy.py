"""A TCP proxy that misbehaves as told: it delays, loses, cuts, goes silent and refuses.

async with Proxy(port) as proxy:
    …connect to proxy.address…
    proxy.cut()          # both sides of every connection are reset
    proxy.mute()         # half-open: connections stay, nothing passes
    proxy.delay_s = 0.2
    proxy.heal()
    proxy.cut_after = lambda: random.randrange(100_000)    # bytes until a connection is cut
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Final

_CHUNK: Final = 16_384
# What a lost segment costs a TCP connection: the sender's wait before it sends it again.
_RESENT_S: Final = (0.2, 0.6)
_CONNECT_S: Final = 5.0
_CHANCE: Final = Random()
_Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Proxy:
    """Forwards the connections made to `address` to a port; an async context manager.

    Attributes:
        delay_s: seconds that each chunk is late.
        loss: the share of chunks that are late by a retransmission, as on a wire that loses.
        refuse: whether new connections are reset.
        cut_after: gives, for each new connection, after how many bytes (both directions together)
            it is cut; None: never.
        cuts: how many connections were cut so, and how often `cut` was called.
        connections: how many were ever made.
    """

    def __init__(
        self,
        to_port: int,
        cut_after: Callable[[], int] | None = None,
        *,
        to_host: str = "127.0.0.1",
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.delay_s = 0.0
        self.loss = 0.0
        self.refuse = False
        self.cut_after = cut_after
        self.cuts = 0
        self.connections = 0
        self.address = f"{host}:{port}"
        self._listen = (host, port)
        self._to = (to_host, to_port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, *self._listen)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.heal()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Resets every connection, with whatever was half sent."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        self.cuts += 1

    def mute(self) -> None:
        """Half-open: connections stay, and nothing passes until `heal`."""
        self._open.clear()

    def heal(self) -> None:
        """Everything passes again at once, what was held back first."""
        self.delay_s, self.loss, self.refuse = 0.0, 0.0, False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                there, back = await asyncio.open_connection(*self._to)
        except (OSError, TimeoutError):
            writer.transport.abort()
            return
        self.connections += 1
        self._writers |= {writer, back}
        left = [self.cut_after()] if self.cut_after is not None else None
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink, (writer, back), left))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: _Pair,
        left: list[int] | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._pass()
                if left is not None and self._used_up(left, data):
                    # A part of it may have gone through: a message is cut in the middle.
                    sink.write(data[: len(data) // 2])
                    break
                sink.write(data)
                await sink.drain()
        for writer in pair:
            writer.transport.abort()
            self._writers.discard(writer)

    def _used_up(self, left: list[int], data: bytes) -> bool:
        left[0] -= len(data)
        self.cuts += left[0] < 0
        return left[0] < 0

    async def _pass(self) -> None:
        late = self.delay_s
        if self.loss and _CHANCE.random() < self.loss:
            late += _CHANCE.uniform(*_RESENT_S)
        if late:
            await asyncio.sleep(late)
        await self._open.wait()
