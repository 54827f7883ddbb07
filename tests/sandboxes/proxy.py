"""A Unix socket in front of a daemon's, which can be cut: the daemon is gone, and back again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path


class CutProxy:
    """Carries connections until it is cut."""

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
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        finally:
            for one in (writer, far_writer):
                one.close()
                self._writers.discard(one)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
