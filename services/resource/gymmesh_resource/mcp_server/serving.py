"""Serves a ToolServer over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gymmesh_resource.mcp_server.tool_server import ToolServer
from gymmesh_runtime.addresses import at_port, family_of, is_wildcard

_START_S = 10.0
_STOP_S = 5.0
# How long a connection may take to its first request; between two the library has a bound itself.
_SILENT_S = 10.0
# How long a caller may take none of the answers that wait for it.
_UNREAD_S = 30.0
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def serve(app: ToolServer, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """The server's URL while it serves; port 0 is one that is free.

    Raises OSError if the port can't be used. The traffic is not encrypted: for other hosts, put a
    proxy with TLS in front of the server.
    """
    with socket.create_server((host, port), family=family_of(host)) as listening:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=int(_STOP_S),
            ws="none",
            http=_Connection,
        )
        server = _McpServer(config)
        bound = listening.getsockname()[1]
        async with app:
            task = asyncio.get_running_loop().create_task(server.serve([listening]))
            try:
                await _started(server, task)
                # All addresses are none that could be connected to.
                shown = socket.gethostname() if is_wildcard(host) else host
                yield f"http://{at_port(shown, bound)}/mcp"
            finally:
                server.should_exit = True
                try:
                    await asyncio.wait((task,), timeout=2 * _STOP_S)
                finally:
                    task.cancel()


class _McpServer(uvicorn.Server):
    """Leaves the process's signals alone: they are the mesh's."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # uvicorn's own has no public type
        yield


class _Connection(H11Protocol):
    """Hangs up where the library would wait for ever: on a caller that says nothing, and on one
    that does not read its answers. And on one that spoils a request which is being answered, where
    the library's two answers would meet.
    """

    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))  # of a TCP connection
        asyncio.get_running_loop().call_later(_SILENT_S, self._hang_up, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._read_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Closing would wait for what is unread.
        self._unread = asyncio.get_running_loop().call_later(_UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def send_400_response(self, msg: str) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_BAD_REQUEST)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _hang_up(self, transport: asyncio.BaseTransport) -> None:
        if self.cycle is None:  # there was no request
            transport.close()


async def _started(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(_START_S):
        while not server.started:
            if task.done():
                task.result()
                raise OSError("the HTTP server stopped during the start")
            await asyncio.sleep(0.01)
