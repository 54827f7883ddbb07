"""A Unix socket in front of a daemon's, which can be cut: the daemon is gone, and back again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path


class CutProxy:
    """Carries connections until it is cut.

    lost: once a request with these bytes was carried, nothing is carried back.
    """

    lost = b""

    def __init__(self, path: Path, target: str) -> None:
        self._path = path
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """For the backend."""
        return f"unix://{self._path}"

    async def start(self) -> None:
        """The daemon is there."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._connect, self._path)

    def cut(self) -> None:
        """The daemon is gone: no connection is left, none is taken."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        self._path.unlink(missing_ok=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        self._writers |= {writer, far_writer}
        answers = asyncio.Event()
        answers.set()
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(
                    self._carry(reader, far_writer, None, answers),
                    self._carry(far_reader, writer, answers, None),
                )
        finally:
            for one in (writer, far_writer):
                one.close()
                self._writers.discard(one)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        may: asyncio.Event | None,
        stops: asyncio.Event | None,
    ) -> None:
        while piece := await reader.read(1 << 16):
            if stops is not None and self.lost and self.lost in piece:
                stops.clear()
            if may is not None:
                await may.wait()
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
