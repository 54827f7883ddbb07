"""A TCP proxy that misbehaves as told: it cuts connections, or lets nothing through any more.

async with CuttingProxy(port) as proxy:
    …connect to proxy.address…
    proxy.cut()          # both sides of every connection are reset
    proxy.mute()         # half-open: connections stay, nothing passes
    proxy.cut_after = lambda: random.randrange(100_000)    # bytes until a connection is cut
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

_CHUNK = 16_384


class CuttingProxy:
    """Forwards connections to a port of this machine; an async context manager.

    `cut_after` gives, for each new connection, after how many bytes (both directions together) it
    is cut; None: never. `cuts` counts connections cut, `connections` those ever made.
    """

    def __init__(self, port: int, cut_after: Callable[[], int] | None = None) -> None:
        self.cut_after = cut_after
        self.cuts = 0
        self.connections = 0
        self.address = ""
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Resets every connection."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        self.cuts += 1

    def mute(self) -> None:
        """Lets nothing through any more, and says nothing of it."""
        self._open.clear()

    def unmute(self) -> None:
        """Lets everything through again, what was held back first."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self.connections += 1
        self._writers |= {writer, back}
        left = [self.cut_after()] if self.cut_after is not None else None
        pair = (writer, back)
        for source, sink in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, sink, pair, left))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        left: list[int] | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._open.wait()
                if left is not None:
                    left[0] -= len(data)
                    if left[0] < 0:
                        # A part of it may have gone through: a message is cut in the middle.
                        sink.write(data[: len(data) // 2])
                        self.cuts += 1
                        break
                sink.write(data)
                await sink.drain()
        for writer in pair:
            writer.transport.abort()
            self._writers.discard(writer)
