"""A connection to one MCP server, and the server's process where it has one.

Invariant: the process ends with the connection. `close` asks the process to stop, and kills it and
its children after a grace period. If this service is killed, the process dies too.

The client library requires that one asyncio task opens and closes a connection. So each connection
has its own task (`_keep`), which an event ends, never a cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from gymmesh_resource.environments._server_tools import ServerTool
from gymmesh_resource.environments.mcp.options import ServerOptions
from gymmesh_resource.environments.mcp.tolerance import mending
from gymmesh_resource.errors import ToolError
from gymmesh_runtime.processes import ending_with_us

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

# The client library itself stops a server within about 7 s: flush, close its input, TERM, KILL.
_STOP_S = 10.0
_MAX_PAGES = 100
# Errors that say that the server or the connection failed. All others are its answer to the call.
_FAULTS = frozenset((-32700, -32600, -32601, -32603, -32000, -32001))
_LOGGER = logging.getLogger("gymmesh.resource.mcp")


class ServerLost(Exception):
    """The server did not start, ended, or broke the protocol; one clause says which."""


OpensStreams: TypeAlias = "Callable[[], contextlib.AbstractAsyncContextManager[tuple[Any, Any]]]"
"""Opens a server's streams of messages, from it and to it, and ends it with them."""


class McpConnection:
    """One connection.

    server: the server's options, or a function that opens its streams. start_s: seconds for the
    server to start and to list its tools.
    """

    def __init__(self, name: str, server: ServerOptions | OpensStreams, start_s: float) -> None:
        self.name = name
        self.tools: list[ServerTool] = []
        self._server = server
        self._start_s = start_s
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._stop.is_set() or (self._keeper is not None and self._keeper.done())

    async def open(self) -> None:
        """Connect, start the server if need be, and list its tools. Raises `ServerLost`."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._keeper = loop.create_task(self._keep(ready))
        try:
            await ready
        except BaseException:
            self._stop.set()
            raise

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """The server's answer. Raises `ServerLost`, and `ToolError` if the server rejects it."""
        from mcp import MCPError
        from pydantic import ValidationError

        if self._client is None or self.lost:
            raise ServerLost("it has ended")
        try:
            return await self._client.call_tool(tool, arguments)
        except MCPError as error:
            if error.code not in _FAULTS:
                raise ToolError(error.message) from None
            self._stop.set()
            raise ServerLost(f"{error.message} (code {error.code})") from None
        except ValidationError as error:
            raise ServerLost(f"its answer to {tool} breaks the protocol: {_first(error)}") from None

    async def close(self) -> None:
        """End the connection and the process; bounded, harmless when called twice."""
        self._stop.set()
        if self._keeper is None or self._keeper.done():
            return
        await asyncio.wait((self._keeper,), timeout=_STOP_S)
        if not self._keeper.done():
            _LOGGER.error("the MCP server %s did not stop within %g s", self.name, _STOP_S)
            self._keeper.cancel()

    async def _keep(self, ready: asyncio.Future[None]) -> None:
        import anyio
        from mcp import Client

        scope = anyio.CancelScope(deadline=anyio.current_time() + self._start_s)
        problem = f"it did not start within {self._start_s:g} s"
        stopping = asyncio.get_running_loop().create_task(self._stop_start(scope))
        try:
            with scope:
                async with contextlib.AsyncExitStack() as stack:
                    transport = await self._transport(stack)
                    client = await stack.enter_async_context(Client(mending(transport)))
                    self.tools = await _list(client)
                    scope.deadline = math.inf
                    self._client = client
                    if not ready.done():
                        ready.set_result(None)
                    await self._stop.wait()
        except Exception as error:
            problem = _innermost(error)
            _LOGGER.debug("the MCP server %s ended", self.name, exc_info=True)
        finally:
            stopping.cancel()
            self._client = None
            self._stop.set()
            if not ready.done():
                ready.set_exception(ServerLost(problem))

    async def _stop_start(self, scope: Any) -> None:
        """While the server still starts, a stop ends the attempt."""
        await self._stop.wait()
        if self._client is None:
            scope.cancel()

    async def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        options = self._server
        if not isinstance(options, ServerOptions):
            return options()
        if options.url is not None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            # Reading has no limit of its own: each call has.
            http = httpx2.AsyncClient(
                headers=options.headers, timeout=httpx2.Timeout(self._start_s, read=None)
            )
            await stack.enter_async_context(http)
            return streamable_http_client(options.url, http_client=http)
        from mcp import StdioServerParameters, stdio_client

        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gymmesh-mcp-"))
        pid_file = Path(folder, "pid")
        # Called after the library has stopped the server, which spares what the server started.
        stack.callback(_kill_group, pid_file)
        command, *arguments = ending_with_us(options.command, pid_file)
        parameters = StdioServerParameters(
            command=command,
            args=arguments,
            env=options.env,
            cwd=options.cwd,
            encoding_error_handler="replace",
        )
        return stdio_client(parameters, errlog=stack.enter_context(_errors_to(options.quiet)))


async def _list(client: Client) -> list[ServerTool]:
    tools: list[ServerTool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += [
            ServerTool(tool.name, tool.description or tool.title or "", tool.input_schema)
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise ServerLost(f"it lists more than {_MAX_PAGES} pages of tools")


def _kill_group(pid_file: Path) -> None:
    """Kill what is left of a server's process group."""
    with contextlib.suppress(OSError, ValueError):
        os.killpg(int(pid_file.read_text(encoding="ascii")), signal.SIGKILL)


@contextlib.contextmanager
def _errors_to(quiet: bool) -> Iterator[TextIO]:
    """Where a server's error output goes; a stream of its own, for ours may be replaced."""
    target = os.open(os.devnull, os.O_WRONLY) if quiet else os.dup(2)
    with open(target, "w", encoding="utf-8") as stream:
        yield stream


def _first(error: Any) -> str:
    """The first of pydantic's mistakes, in one line."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _innermost(error: BaseException) -> str:
    """What is at the bottom of a group of exceptions, in one clause."""
    from pydantic import ValidationError

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerLost):
        return str(error)
    if isinstance(error, ValidationError):
        return f"it breaks the protocol: {_first(error)}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
