"""A program's pipes on the event loop.

They use readiness callbacks, because uvloop's pipe transports close a descriptor twice. The second
time, the descriptor may belong to another program, because programs are started in a thread.
"""

from __future__ import annotations

import asyncio
import os

_CHUNK = 65_536
# Bytes read ahead of the reader; beyond them the program has to wait.
_AHEAD = 262_144


class _PipeEnd:
    """One end of a pipe, which this object owns from now on."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        os.set_blocking(descriptor, False)
        self._loop = asyncio.get_running_loop()
        #: There is more to read, or room to write, or it has ended.
        self._changed = asyncio.Event()
        self._watching = False
        self._ended = False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OutputPipe(_PipeEnd):
    """The read end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._buffer = bytearray()
        self._watch()

    async def read(self, size: int) -> bytes:
        """At most `size` bytes, as soon as there are any; empty at the end."""
        await self.until_readable()
        return self._take(size)

    async def until_readable(self) -> bool:
        """Wait until there is something to read, without reading it; False if the pipe ended
        first.
        """
        while not self._buffer and not self._ended:
            await self._more()
        return bool(self._buffer)

    async def read_exactly(self, size: int) -> bytes:
        """Exactly this many bytes. Raises EOFError if the pipe ended first."""
        while len(self._buffer) < size:
            if self._ended:
                raise EOFError("the program's output has ended")
            await self._more()
        return self._take(size)

    def close(self) -> None:
        """Close it; may be called twice."""
        self._end()
        self._close()

    async def _more(self) -> None:
        self._changed.clear()
        self._watch()
        await self._changed.wait()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _watch(self) -> None:
        if not self._watching and not self._ended:
            self._watching = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._buffer += data
            if len(self._buffer) >= _AHEAD:
                self._unwatch()  # until more is asked for
            self._changed.set()
        else:
            self._end()

    def _end(self) -> None:
        self._unwatch()
        self._ended = True
        self._changed.set()


class InputPipe(_PipeEnd):
    """The write end of a pipe."""

    async def write(self, data: bytes) -> None:
        """Write everything. Raises OSError if the reader is gone, or if the pipe was closed."""
        view = memoryview(data)
        while view:
            if self._ended:
                raise BrokenPipeError("the program's input is closed")
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                await self._until_writable()

    def close(self) -> None:
        """Close it, so that the program's input ends; may be called twice."""
        self._unwatch()
        self._ended = True
        self._changed.set()
        self._close()

    async def _until_writable(self) -> None:
        self._changed.clear()
        self._watching = True
        self._loop.add_writer(self._fd, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._fd)
