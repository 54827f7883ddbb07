"""Connections that a sandbox makes to this process, and how their bytes are forwarded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from gymmesh_runtime.processes import write_to

_PIECE_BYTES: Final = 1 << 16


class ConnectionServer:
    """Serves the connections of a listening socket until it is closed.

    Args:
        serve: serves one connection, which is closed afterwards. OSError, TimeoutError and
            ValueError end the connection.
    """

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    async def open(self, listening: socket.socket) -> None:
        """Starts to serve; an earlier socket is closed."""
        await self.close()
        local = listening.family == socket.AF_UNIX
        start = asyncio.start_unix_server if local else asyncio.start_server
        self._server = await start(self._connected, sock=listening)

    async def close(self) -> None:
        """Ends all connections; may be called twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, ValueError):
            pass  # the sandbox finds its connection closed
        finally:
            writer.close()


async def carry(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    idle_s: float | None = None,
    *,
    sent: Callable[[bytes], None] | None = None,
    far_ended: Callable[[], None] | None = None,
) -> None:
    """Forwards bytes in both directions until both sides have ended, one is gone, or nothing
    arrives.

    Args:
        near, far: the two connections. If both sides have ended, both connections stay open.
            Otherwise both are aborted, because a close would wait forever to send what the other
            side no longer reads.
        idle_s: the maximum time in which neither side sends; then TimeoutError. None: no limit.
        sent: called with each piece that the near side sends.
        far_ended: called when the far side sends nothing more.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_s) as idle:

        def moved(_: bytes) -> None:
            if idle_s is not None:
                idle.reschedule(loop.time() + idle_s)

        def moved_on(piece: bytes) -> None:
            moved(piece)
            if sent is not None:
                sent(piece)

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(near[0], far[1], moved_on))
                back = both.create_task(_copy(far[0], near[1], moved))
                if far_ended is not None:
                    back.add_done_callback(lambda _: far_ended())
        except BaseExceptionGroup as errors:
            _abort(near, far)
            if errors.split(OSError)[1] is not None:  # not only that one side is gone
                raise
        except BaseException:  # not in a group: asyncio.timeout and callers know a cancellation
            _abort(near, far)
            raise


def _abort(*sides: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    for _, writer in sides:
        writer.transport.abort()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: Callable[[bytes], None]
) -> None:
    """Forwards one direction until it ends, and then ends it on the other side."""
    while piece := await reader.read(_PIECE_BYTES):
        moved(piece)
        write_to(writer, piece)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: of uvloop, when it is closed
        writer.write_eof()
