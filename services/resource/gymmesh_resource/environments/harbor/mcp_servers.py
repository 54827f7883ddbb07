"""MCP servers of a task: programs that speak over their standard streams, in the agent's sandbox.

The servers start before each step of the agent and end before the tests of the step. The policy can
break a server, because both share a sandbox. So a call of a server that has ended is an error that
the policy sees, not a failure of the rollout.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource import SandboxHandle, ToolError
from gymmesh_resource.environments._server_tools import OfferedTool, offer
from gymmesh_resource.environments.harbor.task import TaskServer
from gymmesh_resource.environments.mcp.client import McpConnection, ServerLost, answer, text

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

# A server that installs itself by npx or uvx first takes longer than one that only starts.
_START_S: Final = 30.0
_CLOSE_S: Final = 10.0
_LONGEST_LINE: Final = 16 << 20  # bytes of one message
_KEPT: Final = 300  # characters of what a server wrote to its standard error


class TaskServers:
    """The MCP servers of one session, each with its connection."""

    def __init__(self, servers: Sequence[TaskServer]) -> None:
        self._servers = servers
        self._connections: dict[str, McpConnection] = {}
        self._tools: dict[str, OfferedTool] = {}
        self._errors: dict[str, bytearray] = {}

    @property
    def functions(self) -> list[Mapping[str, Any]]:
        """Their tools as Responses JSON, each as `SERVER__TOOL`."""
        return [tool.function for tool in self._tools.values()]

    async def open(self, sandbox: SandboxHandle) -> None:
        """Start all and list their tools.

        Raises RuntimeError, for a server that does not start, and SANDBOX_LOST.
        """
        failed = await self._start_all(sandbox)
        if failed:
            raise RuntimeError("; ".join(failed))
        listed = {name: connection.tools for name, connection in self._connections.items()}
        self._tools = {tool.name: tool for tool in offer(listed, always_prefix=True)}

    async def reopen(self, sandbox: SandboxHandle) -> None:
        """Restart all servers, for the next step. The tools of a server that does not start return
        errors, because the policy may have broken it. Raises SANDBOX_LOST.
        """
        await self._start_all(sandbox)

    async def call(self, name: str, arguments: dict[str, Any]) -> str | responses_pb2.ContentParts:
        """Call a tool and return its answer. Raises ToolError."""
        found = self._tools.get(name)
        if found is None:
            raise ToolError(f"No MCP server of the task offers the tool {name!r}.")
        try:
            result = await self._connections[found.server].call(found.tool.name, arguments)
        except ServerLost as error:
            raise ToolError(f"The MCP server {found.server!r} failed: {error}.") from None
        if result.is_error:
            raise ToolError(text(result))
        return answer(result)

    async def close(self) -> None:
        """End all; harmless when called twice."""
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    async def _start_all(self, sandbox: SandboxHandle) -> list[str]:
        """Start all at the same time. Gives a clause for each that failed."""
        self._errors = {one.name: bytearray() for one in self._servers}
        self._connections = {
            one.name: McpConnection(
                one.name, partial(_spoken_to, sandbox, one, self._errors[one.name]), _START_S
            )
            for one in self._servers
        }
        results = await asyncio.gather(
            *(one.open() for one in self._connections.values()), return_exceptions=True
        )
        failed = []
        for one, result in zip(self._connections.values(), results, strict=True):
            if isinstance(result, ServerLost):
                failed.append(self._failed(one.name, result))
            elif isinstance(result, BaseException):
                raise result
        if failed:
            # Where the sandbox itself is lost, it is to blame, and says so here.
            await sandbox.exec(["/bin/sh", "-c", ":"])
        return failed

    def _failed(self, name: str, error: ServerLost) -> str:
        command = next(shlex.join(one.command) for one in self._servers if one.name == name)
        said = self._errors[name].decode("utf-8", "replace").strip()[-_KEPT:]
        wrote = f"; it wrote: {said}" if said else ""
        return f"the MCP server {name!r} ({command}) did not start: {error}{wrote}"


@asynccontextmanager
async def _spoken_to(
    sandbox: SandboxHandle, server: TaskServer, errors: bytearray
) -> AsyncIterator[tuple[Any, Any]]:
    """The streams of messages from and to a server, which ends with them. Raises MeshError.

    errors: gets what it writes to its standard error.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    process = await sandbox.start(server.command, output_bytes=_LONGEST_LINE)
    from_server, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    outgoing, to_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        rest = b""
        async with from_server, aclosing(process.output()) as events:
            async for stream, data in events:
                if stream == "stderr":
                    errors.extend(data)
                    del errors[: -4 * _KEPT]  # bytes of so many characters
                else:
                    *lines, rest = (rest + data).split(b"\n")
                    for line in filter(bytes.strip, lines):
                        await from_server.send(_message(line))

    async def write() -> None:
        async for message in to_server:
            document = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.write(f"{document}\n")

    async with (
        from_server, incoming, outgoing, to_server, anyio.create_task_group() as group
    ):  # fmt: skip
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await process.kill()


def _message(line: bytes) -> SessionMessage | Exception:
    """A line as a message; the error that it is none."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error
