"""An OpenEnv server as an environment.

A session is one WebSocket of the server, which is an environment of its own there: `reset` opens
the episode, each tool call is a `step`, and the steps' rewards are the verdict.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import aiohttp
import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments._base64_images import tool_answer, user_message
from gymmesh_resource.environments._remote_http import http_client, refusal
from gymmesh_resource.environments._step_rewards import EpisodeRule, verdict_of
from gymmesh_resource.environments._tool_schemas import schema_problem
from gymmesh_resource.environments.openenv.actions import (
    LIST_TOOLS,
    OfferedAction,
    UnknownSchema,
    offered_actions,
    offered_mcp_tools,
    takes_mcp,
)
from gymmesh_resource.environments.openenv.connection import (
    HandshakeRefused,
    OpenEnvConnection,
    ServerRefused,
    SocketLost,
    connect,
)
from gymmesh_resource.environments.openenv.observations import (
    BadStep,
    ObservedStep,
    ToolFault,
    read_step,
    shown,
    shown_of_mcp,
)
from gymmesh_resource.environments.openenv.options import reset_data, server_root
from gymmesh_resource.environments.openenv.schema import SchemaReader, SchemaRefused
from gymmesh_resource.errors import ToolError
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.tools import ToolResult
from gymmesh_resource.verdicts import Outcome
from gymmesh_resource.workers import Slots
from gymmesh_responses import dumps
from gymmesh_runtime.errors import MeshError

_Reason: TypeAlias = errors_pb2.ErrorReason
_FAULT = _Reason.ERROR_REASON_ENVIRONMENT_FAULT
# How long the server may take for the state that a verdict shows.
_STATE_S = 5.0
# Bytes of JSON of a state or an observation that go into the evidence.
_EVIDENCE = 65_536
_MOST_REWARDS = 1000
_SHOWN = 300


@dataclass(slots=True)
class _Episode:
    """A session's connection, its tools by name, and what its steps have brought."""

    connection: OpenEnvConnection
    first: ObservedStep
    held: AsyncExitStack
    actions: dict[str, OfferedAction] = field(default_factory=dict)
    last: ObservedStep | None = None
    rewards: list[float] = field(default_factory=list)
    steps: int = 0


class OpenEnvEnvironment(Environment[_Episode]):
    """Tasks, actions and rewards of an OpenEnv server, over its WebSocket.

    Each session is a connection of its own. The reward is made of the steps' rewards.
    """

    version = "1"
    in_order = True
    verify_needs_session = True
    keep_state = False  # the state is at the server
    reward_range = (-math.inf, math.inf)  # the server's own, which it does not declare
    reward_rule = resource_pb2.REWARD_RULE_INCLUDED

    def __init__(
        self,
        *,
        url: str,
        headers: dict[str, str] | None = None,
        tasks: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 100,
        prompt: str = "Act with the tools until the episode is over.",
        reward: EpisodeRule = "sum",
        unrewarded: float | None = None,
        execution_errors: Literal["fault", "show"] = "fault",
        show_metadata: bool = False,
        max_sessions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 512,
        max_message_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 16 << 20,
    ) -> None:
        """Options.

        url: the server's root, such as http://127.0.0.1:8000. headers: sent with every request.
        tasks: how many example tasks there are, with the seeds 0, 1, 2 …; prompt: their prompt.
        reward: the episode's reward, of those of its steps: their sum, the last, or the largest.
        unrewarded: the reward of an episode none of whose steps had one; null: it has none.
        execution_errors: whether an exception in the server's `step` fails the rollout, or is
            shown to the model.
        show_metadata: whether the model sees the observations' `metadata`.
        max_sessions: connections at a time; sessions beyond it wait. max_message_bytes: of one
            message of the server.
        """
        self._url = server_root(url)
        self._headers = headers or {}
        self._tasks, self._prompt = tasks, prompt
        self._rule, self._unrewarded = reward, unrewarded
        self._shows_errors = execution_errors == "show"
        self._shows_metadata = show_metadata
        self._slots = Slots("connections", max_sessions, of_sandboxes=False)
        self._max_bytes = max_message_bytes
        self._http: aiohttp.ClientSession | None = None
        self._schema = SchemaReader(self._url, max_message_bytes)

    async def open(self) -> None:
        """Get the HTTP client ready; the server may still be starting."""
        self._http = http_client(self._headers, max_connections=0)

    async def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """One task for each seed."""
        return [{"prompt": self._prompt, "openenv": {"seed": seed}} for seed in range(self._tasks)]

    def check_task(self, task: Task) -> None:
        reset_data(task)

    async def create_state(self, task: Task, seed: int) -> _Episode:
        """Connect, and reset the environment as the row says."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._slots.one())
            try:
                connection = await connect(self._client(), self._url, max_bytes=self._max_bytes)
            except HandshakeRefused as error:
                raise self._refusal(error, "connect") from error
            except SocketLost as error:
                raise self._fault("connect", str(error)) from error
            held.push_async_callback(connection.close)
            try:
                first = await self._step(connection, "reset", reset_data(task))
            except ServerRefused as error:
                raise self._not_opened(error) from error
            if first.done:
                raise self._fault("reset", "the episode was over before its first step")
            return _Episode(connection, first, held.pop_all())

    async def close_session(self, session: Session[_Episode]) -> None:
        await session.state.held.aclose()

    async def session_tools(self, session: Session[_Episode]) -> Sequence[Mapping[str, Any]]:
        """The server's actions; those of MCP tools are the session's own."""
        episode = session.state
        try:
            schema = await self._schema.actions(self._client())
            if takes_mcp(schema):
                answer = await self._step(episode.connection, "step", LIST_TOOLS)
                actions = offered_mcp_tools(answer.observation.get("tools"))
            else:
                actions = offered_actions(schema)
        except SchemaRefused as error:
            raise self._refusal(error, "session_tools") from error
        except (UnknownSchema, ServerRefused) as error:
            raise self._fault("session_tools", str(error)) from error
        for one in actions:
            if problem := schema_problem(one.function["parameters"]):
                raise self._fault("session_tools", f"the tool {one.name!r} is invalid: {problem}")
        episode.actions = {one.name: one for one in actions}
        return [one.function for one in actions]

    def opening(self, session: Session[_Episode]) -> list[responses_pb2.Item]:
        """The observation of `reset`, as a user's message."""
        parts = shown(session.state.first.observation, metadata=self._shows_metadata)
        return [user_message(parts)] if parts else []

    async def call_other(
        self, session: Session[_Episode], name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        """One step. An action that the server refuses is shown to the model."""
        episode = session.state
        offered = episode.actions.get(name)
        if offered is None:
            raise ToolError(f"The environment has no action {name!r}.")
        if session.done:
            raise ToolError("The episode is over. The action was not executed.")
        action = offered.action(arguments)
        try:
            answer = await self._step(episode.connection, "step", action)
        except ServerRefused as error:
            raise self._refused(error, offered, action) from error
        episode.last, episode.steps = answer, episode.steps + 1
        if answer.reward is not None:
            episode.rewards.append(answer.reward)
        return self._result(answer, offered)

    async def verify(self, session: Session[_Episode], rollout: Rollout) -> Outcome:
        """The episode's reward; the evidence has its rewards, last observation and state."""
        episode = session.state
        evidence = {
            "steps": episode.steps,
            "done": session.done,
            "rewards": episode.rewards[-_MOST_REWARDS:],
            "observation": _bounded((episode.last or episode.first).observation),
            "state": await _state(episode.connection),
        }
        return verdict_of(episode.rewards, self._rule, self._unrewarded, evidence)

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("the environment is not open")
        return self._http

    async def _step(self, connection: OpenEnvConnection, kind: str, data: Any) -> ObservedStep:
        """The answer to a `reset` or a `step`. Raises ENVIRONMENT_FAULT, ServerRefused."""
        try:
            return read_step(await connection.ask(kind, data, "observation"))
        except (SocketLost, BadStep) as error:
            raise self._fault(kind, str(error)) from error

    def _result(self, answer: ObservedStep, offered: OfferedAction) -> ToolResult:
        try:
            if offered.mcp_name is None:
                parts, wrong = shown(answer.observation, metadata=self._shows_metadata), False
            else:
                parts, wrong = shown_of_mcp(answer.observation, metadata=self._shows_metadata)
        except ToolFault as error:
            raise self._fault("step", f"its MCP tool could not be reached: {error}") from error
        return ToolResult(tool_answer(parts), answer.reward, answer.done, error=wrong)

    def _refused(
        self, error: ServerRefused, offered: OfferedAction, action: Mapping[str, Any]
    ) -> Exception:
        """What an error of `step` is: the model's, where its action does not fit."""
        if error.code == "VALIDATION_ERROR" and all(
            offered.is_about(problem, action) for problem in error.problems
        ):
            return ToolError(_problems(error))
        if error.code == "EXECUTION_ERROR" and self._shows_errors:
            return ToolError(error.message)
        return self._fault("step", str(error)[:_SHOWN])

    def _not_opened(self, error: ServerRefused) -> MeshError:
        """What an error of `reset` is; a server without room is tried again later."""
        if error.code != "CAPACITY_REACHED":
            return self._fault("reset", str(error)[:_SHOWN])
        return MeshError(
            _Reason.ERROR_REASON_SESSION_LIMIT,
            f"The OpenEnv server at {self._url} has no room for another session: "
            f"{error.message[:_SHOWN]}. Set max_sessions to the server's limit.",
            metadata={"environment": "openenv"},
        )

    def _refusal(self, error: HandshakeRefused | SchemaRefused, stage: str) -> MeshError:
        """What a status of the server is: a retry helps where it may answer another one."""
        server = f"The OpenEnv server at {self._url}"
        return refusal(server, "openenv", error.status, error.path) or self._fault(
            stage, str(error)
        )

    def _fault(self, stage: str, problem: str) -> MeshError:
        self._schema.forget()
        return MeshError(
            _FAULT,
            f"The OpenEnv server at {self._url} failed in {stage}: {problem}.",
            metadata={"environment": "openenv", "stage": stage},
        )


def _problems(error: ServerRefused) -> str:
    """What is wrong with an action, a line for each field."""
    lines = [
        f"{'.'.join(map(str, problem.get('loc', ())))}: {problem.get('msg')}"
        for problem in error.problems
        if isinstance(problem, dict)
    ]
    return "\n".join(["The action is not valid.", *lines])[:2000]


async def _state(connection: OpenEnvConnection) -> Any:
    """The server's state, or why it is not there: a verdict needs only the steps' rewards."""
    try:
        async with asyncio.timeout(_STATE_S):
            return _bounded(await connection.ask("state", None, "state"))
    except TimeoutError:
        return f"(the server did not answer within {_STATE_S:g} s)"
    except (SocketLost, ServerRefused) as error:
        return f"({str(error)[:_SHOWN]})"


def _bounded(value: Mapping[str, Any]) -> Any:
    size = len(dumps(value))
    return value if size <= _EVIDENCE else f"({size} bytes, more than the limit for evidence)"
