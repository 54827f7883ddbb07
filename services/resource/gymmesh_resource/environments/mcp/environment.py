"""Tools of MCP servers in an environment.

A session offers the tools of all servers. Each session has its own process of a server, unless the
server is shared. So a rollout can't harm the server of another rollout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version as installed_version
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments._server_tools import OfferedTool, ServerTool, offer
from gymmesh_resource.environments._tool_schemas import schema_problem
from gymmesh_resource.environments.llm_judge.control import AnswerUnjudged, judged
from gymmesh_resource.environments.mcp.connection import McpConnection, ServerLost
from gymmesh_resource.environments.mcp.content import answer, text
from gymmesh_resource.environments.mcp.options import ServerOptions, check_server
from gymmesh_resource.environments.mcp.verdict import INSTRUCTIONS, judgement, matches, question
from gymmesh_resource.environments.nemo_rows import refuse_others
from gymmesh_resource.errors import TaskInvalid, ToolError
from gymmesh_resource.expected import Expected, is_number
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome, Skipped, Verdict
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra
from gymmesh_runtime.text import one_line

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
_EXPECTED = "expected_answer"
_LOGGER = logging.getLogger("gymmesh.resource.mcp")
# Characters of an answer in the explanation of a verdict.
_SHOWN = 100
_LIBRARY = 2  # the major version of the mcp package whose client this is written for


@dataclass(slots=True)
class _Servers:
    """A session's connections by server name, and its tools by the name that the model sees."""

    connections: dict[str, McpConnection] = field(default_factory=dict)
    tools: dict[str, OfferedTool] = field(default_factory=dict)


class McpEnvironment(Environment[_Servers]):
    """The tools of MCP servers, over standard streams or streamable HTTP.

    The option `verdict` chooses how the model's last message is compared with `expected_answer`.
    """

    version = "3"
    state = _Servers
    verify_needs_session = False
    examples = "tasks.jsonl"
    extra = Extra("mcp", ("mcp",))
    models: ClassVar[tuple[str, ...]] = ("judge",)

    def __init__(
        self,
        *,
        servers: dict[str, ServerOptions],
        shared: bool = False,
        prefix: Literal["on_clash", "always"] = "on_clash",
        verdict: Literal["none", "exact", "contains", "judge"] = "none",
        start_timeout_s: _Seconds = 30.0,
        starts_at_once: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8,
    ) -> None:
        """Options.

        servers: the servers, each under a name of your choice, with a `command` or a `url`.
        shared: whether all sessions share one process or connection of a server. The key `shared`
            of a server takes precedence.
        prefix: which tools are named `server__tool`: `on_clash`, if two servers have a tool of the
            same name; or `always`.
        verdict: `none`; `exact`: the last message is `expected_answer`; `contains`: it contains
            `expected_answer`; `judge`: a model says that they have the same meaning.
        start_timeout_s: seconds for a server to start and to list its tools.
        starts_at_once: number of servers that may start at a time.
        """
        found = installed_version("mcp")
        if int(found.split(".")[0]) < _LIBRARY:
            raise ValueError(
                f"the package `mcp` {found} is too old: run pip install 'gymmesh[mcp]'"
            )
        if not servers:
            raise ValueError("'servers' is empty; add at least one server, with 'command' or 'url'")
        for name, server in servers.items():
            check_server(name, server)
        self._servers = servers
        self._shared = shared
        self._always_prefix = prefix == "always"
        self._verdict = verdict
        self._start_s = start_timeout_s
        self._starting = asyncio.Semaphore(starts_at_once)
        self._for_all: dict[str, McpConnection] = {}
        self._left_out: set[tuple[str, str]] = set()  # tools that were warned of
        self._locks = {name: asyncio.Lock() for name in servers}

    def called_models(self) -> Sequence[str]:
        return self.models if self._verdict == "judge" else ()

    async def close(self) -> None:
        connections = list(self._for_all.values())
        self._for_all.clear()
        await asyncio.gather(*(connection.close() for connection in connections))

    def check_task(self, task: Task) -> None:
        """With a verdict, the row needs an `expected_answer`: text, a number, or a list of them."""
        if self._verdict == "none":
            return
        refuse_others(task, ())
        if not any(part.strip() for part in _expected(task)):
            raise TaskInvalid(_EXPECTED, "is empty; write the right answer")

    async def session_tools(self, session: Session[_Servers]) -> Sequence[Mapping[str, Any]]:
        servers = session.state
        # One after another would add up the start times; a failure cancels the others.
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._connect(name, servers.connections))
                for name in self._servers
            ]
        if failed := next((error for task in tasks if (error := task.result())), None):
            raise failed
        listed = {
            name: [
                tool
                for tool in servers.connections[name].tools
                if options.tools is None or tool.name in options.tools
                if self._can_be_offered(name, tool)
            ]
            for name, options in self._servers.items()
        }
        offered = offer(listed, always_prefix=self._always_prefix)
        servers.tools = {tool.name: tool for tool in offered}
        return [tool.function for tool in offered]

    def _can_be_offered(self, server: str, tool: ServerTool) -> bool:
        """Whether models' hosts take a tool's schema. One that they refuse would fail each call of
        the model, whatever tool that uses.
        """
        problem = schema_problem(tool.schema)
        if problem and (server, tool.name) not in self._left_out:
            self._left_out.add((server, tool.name))
            _LOGGER.warning(
                "skipped the tool %s of the MCP server %s: the schema of the tool is invalid (%s)",
                one_line(tool.name),
                server,
                one_line(problem),
            )
        return not problem

    async def call_other(
        self, session: Session[_Servers], name: str, arguments: dict[str, Any]
    ) -> str | responses_pb2.ContentParts:
        """Call the tool at its server. The model sees an error that the server reports."""
        found = session.state.tools.get(name)
        if found is None:
            raise ToolError(f"No server offers the tool {name!r}.")
        try:
            result = await session.state.connections[found.server].call(found.tool.name, arguments)
        except ServerLost as error:
            raise _fault(found.server, "call_tool", str(error)) from None
        if result.is_error:
            raise ToolError(text(result))
        return answer(result)

    async def close_session(self, session: Session[_Servers]) -> None:
        shared = set(self._for_all.values())
        own = [each for each in session.state.connections.values() if each not in shared]
        await asyncio.gather(*(connection.close() for connection in own))

    def expected(self, task: Task) -> list[Expected]:
        """The row's `expected_answer`, unless `verdict` is `none`."""
        if self._verdict == "none":
            return []
        return [Expected(one, "number" if is_number(one) else "text") for one in _expected(task)]

    async def verify(self, session: Session[_Servers], rollout: Rollout) -> Outcome:
        """Compare the last message with `expected_answer`, or let the judge compare them."""
        if self._verdict == "none":
            return Skipped(
                "The environment's option 'verdict' is 'none', so rollouts are not judged."
            )
        expected = _expected(rollout.task)
        if self._verdict != "judge":
            contains = self._verdict == "contains"
            found = matches(rollout.answer, expected, contains=contains)
            said = " ".join(rollout.answer.split())[:_SHOWN]
            explanation = f"expected {' or '.join(expected)[:_SHOWN]!r}, got {said!r}"
            return Verdict(float(found), explanation=explanation)
        if not rollout.answer.strip():
            return Verdict(0.0, evidence={"judgement": "no answer"}, explanation="no answer")
        replies: list[str] = []

        async def ask(about: str) -> bool | None:
            asked = question(rollout.task.message.params, expected, about)
            answered = await session.ask("judge", asked, system=INSTRUCTIONS, temperature=0.0)
            replies.append(answered.text)
            return judgement(answered.text)

        try:
            correct = await judged(ask, rollout.answer)
        except AnswerUnjudged as error:
            evidence = {"judgement": "none", "failure_reason": str(error)}
            return Verdict(0.0, evidence=evidence, explanation=str(error))
        if correct is None:
            raise ValueError(f"the judge returned no judgement: {replies[-1][-200:]!r}")
        return Verdict(
            float(correct),
            evidence={"judgement": replies[-1]},
            explanation=f"the judge says: {'correct' if correct else 'incorrect'}",
        )

    async def _connect(self, name: str, connections: dict[str, McpConnection]) -> MeshError | None:
        """Connect to one server; the error that its failure is, for only one can be reported."""
        shared = self._servers[name].shared
        try:
            if self._shared if shared is None else shared:
                connections[name] = await self._connection_for_all(name)
            else:
                connections[name] = McpConnection(name, self._servers[name], self._start_s)
                async with self._starting:
                    await connections[name].open()
        except ServerLost as error:
            return _fault(name, "session_tools", str(error))
        return None

    async def _connection_for_all(self, name: str) -> McpConnection:
        async with self._locks[name]:
            known = self._for_all.get(name)
            if known is not None and not known.lost:
                return known
            fresh = McpConnection(name, self._servers[name], self._start_s)
            try:
                async with self._starting:
                    await fresh.open()
            except BaseException:
                await fresh.close()
                raise
            self._for_all[name] = fresh
            return fresh


def _expected(task: Task) -> list[str]:
    value = task.require(_EXPECTED, str, int, float, list)
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str | int | float) for part in values):
        raise TaskInvalid(_EXPECTED, "must be text, a number, or a list of texts and numbers")
    return [str(part) for part in values]


def _fault(server: str, stage: str, problem: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT,
        f"The MCP server {server!r} failed in {stage}: {problem}.",
        metadata={"environment": "mcp", "server": server, "stage": stage},
    )
