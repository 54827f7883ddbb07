"""A resources server with a POST for each tool, or its tools over MCP, and a verdict at the end."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environments.nemo_gym.documents import (
    BadVerdict,
    row_of,
    tool_names,
    verdict_of,
    verify_body,
)
from gymmesh_resource.environments.nemo_gym.protocol import NemoProtocol, RemoteSession
from gymmesh_resource.environments.nemo_gym.server import (
    FAULT,
    GATEWAY_STATUSES,
    VERIFIER_FAULT,
    NemoServer,
)
from gymmesh_resource.errors import TaskInvalid, ToolError
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome
from gymmesh_responses import CodecError, loads
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_resource.environments._server_tools import OfferedTool
    from gymmesh_resource.environments.mcp.client import McpConnection

# Endpoints that are no tools: a model that could call them would choose its own reward.
_RESERVED: Final = frozenset(
    {"seed_session", "close_session", "verify", "aggregate_metrics", "run", "close", "mcp"}
)
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# Seconds to connect to `/mcp` and to list its tools.
_START_S: Final = 30.0
_EXTRA: Final = Extra("mcp", ("mcp",))
_LOGGER = logging.getLogger("gymmesh.resource.nemo_gym")


class McpAccess(msgspec.Struct, frozen=True):
    """What a server says of its tools over MCP: the headers open one session."""

    server_name: str
    headers: dict[str, str]
    url_path: str = "/mcp"
    transport: Literal["http"] = "http"


@dataclass(slots=True)
class ToolSession(RemoteSession):
    """seeded: what the server answered when it was seeded. connection: to its tools over MCP,
    where they are used; tools: those, by the name that the model sees.
    """

    seeded: dict[str, Any] = field(default_factory=dict)
    connection: McpConnection | None = None
    tools: dict[str, OfferedTool] = field(default_factory=dict)


class ToolProtocol(NemoProtocol):
    """Tools and a verdict. close_path: posted to at the end; headers: sent to `/mcp`, too."""

    def __init__(self, server: NemoServer, close_path: str, headers: Mapping[str, str]) -> None:
        super().__init__(server)
        self._close_path = close_path
        self._headers = headers

    def check(self, task: Task) -> None:
        """No tool may have the name of one of the server's own endpoints, or lead to one."""
        for name in tool_names(task):
            if name in _RESERVED or not _NAME.fullmatch(name):
                raise TaskInvalid(
                    "responses_create_params.tools",
                    f"has a tool named {name!r}. Rename the tool: {name!r} is not a valid tool "
                    "name, or is the name of an endpoint of the server",
                )

    async def start(self, task: Task) -> ToolSession:
        """Seed a session of the server with the task's row."""
        remote = ToolSession()
        answer = await self.server.post("seed_session", row_of(task), remote.cookies, FAULT)
        if not answer.ok:
            raise self.server.refused("seed_session", answer, FAULT)
        try:
            seeded = loads(answer.text)
        except CodecError:
            seeded = None
        if isinstance(seeded, dict):
            remote.seeded = seeded
        return remote

    async def tools(self, remote: ToolSession, task: Task) -> Sequence[Mapping[str, Any]]:
        """The tools behind the server's `/mcp`, for a row that has none of its own."""
        offered = remote.seeded.get("mcp")
        if offered is None or tool_names(task):
            return ()
        if problem := _EXTRA.problem("its tools are offered over MCP at /mcp, which"):
            raise self.server.error("mcp", problem, FAULT)
        from gymmesh_resource.environments._server_tools import offer
        from gymmesh_resource.environments._tool_schemas import schema_problem
        from gymmesh_resource.environments.mcp.client import (
            McpConnection,
            ServerLost,
            ServerOptions,
        )

        access = self._access(offered)
        options = ServerOptions(
            url=f"{self.server.url}/{access.url_path.lstrip('/')}",
            headers={**self._headers, **access.headers},
        )
        remote.connection = McpConnection(access.server_name, options, _START_S)
        try:
            await remote.connection.open()
        except ServerLost as error:
            raise self.server.error("mcp", str(error), FAULT) from error
        listed = [
            tool
            for tool in remote.connection.tools
            if tool.name not in _RESERVED and not schema_problem(tool.schema)
        ]
        remote.tools = {tool.name: tool for tool in offer({access.server_name: listed})}
        return [tool.function for tool in remote.tools.values()]

    async def call(
        self, remote: ToolSession, name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """One of the row's tools: a POST to the endpoint of its name; or one behind `/mcp`.

        What the server answers is shown to the model, errors included.
        """
        if name in remote.tools:
            return await self._call_mcp(remote, name, arguments)
        answer = await self.server.post(name, arguments, remote.cookies, FAULT)
        if answer.status in GATEWAY_STATUSES:
            raise self.server.error(name, f"it answered {answer.status}", FAULT)
        if not answer.ok:
            raise ToolError(answer.text)
        return answer.text

    async def verify(self, remote: ToolSession, rollout: Rollout) -> Outcome:
        """The server's verdict on the whole rollout."""
        body = verify_body(
            rollout,
            response_id=f"resp_{rollout.rollout_id or secrets.token_hex(12)}",
            created_at=time.time(),
        )
        answer = await self.server.ask("verify", body, remote.cookies, VERIFIER_FAULT)
        try:
            return verdict_of(answer, body)
        except BadVerdict as error:
            problem = f"its answer is not a verdict: {error}"
        raise self.server.error("verify", problem, VERIFIER_FAULT)

    async def end(self, remote: ToolSession) -> None:
        """Tell the server, where it wants to know."""
        if remote.connection is not None:
            await remote.connection.close()
        if not self._close_path:
            return
        answer = await self.server.post(self._close_path, remote.seeded, remote.cookies, FAULT)
        if not answer.ok:
            _LOGGER.warning("%s/%s answered %d", self.server.url, self._close_path, answer.status)

    async def _call_mcp(
        self, remote: ToolSession, name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        from gymmesh_resource.environments.mcp.client import ServerLost, answer, text

        assert remote.connection is not None  # it listed the tool
        try:
            result = await remote.connection.call(remote.tools[name].tool.name, arguments)
        except ServerLost as error:
            raise self.server.error("mcp", str(error), FAULT) from None
        if result.is_error:
            raise ToolError(text(result))
        return answer(result)

    def _access(self, offered: object) -> McpAccess:
        """What `/seed_session` says of the tools over MCP. Raises ENVIRONMENT_FAULT."""
        try:
            return msgspec.convert(offered, McpAccess)
        except msgspec.ValidationError as error:
            problem = f"its tool list over MCP can't be read: {error}"
            raise self.server.error("seed_session", problem, FAULT) from None
