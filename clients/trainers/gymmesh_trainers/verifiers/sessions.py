"""Sessions of an environment for episodes that verifiers drives."""

from __future__ import annotations

import math
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_agent.environment import Environments, SessionClient
from gymmesh_agent.failures import StepFailed
from gymmesh_agent.plan import AttemptId, RolloutClock
from gymmesh_client import UserError
from gymmesh_mesh.verifying import RESOURCE
from gymmesh_responses import bytes_to_text, dumps, loads, text_of
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_trainers.trainer_collector import open_environment

_ASK_S: Final = 30.0


class NotJudged(Exception):
    """There is no reward; the text says why. It is never a reward of 0."""


class MeshSession:
    """A session from its opening to its verdict, for one episode.

    Attributes:
        token: the session's name at the tool server. url: where the tool server calls the session.
        calls: the tool calls with their answers, in order.
        last_items: the environment's items at the end of the episode.
        done: whether the environment ended the episode.
        failure: the first failed step; a failed session has no verdict.
    """

    def __init__(self, client: SessionClient, request: str) -> None:
        self.token = secrets.token_urlsafe(24)
        self.url = ""
        self.calls: list[tuple[str, str]] = []
        self.last_items: Sequence[responses_pb2.Item] = ()
        self.done = False
        self.failure: StepFailed | None = None
        self._client = client
        self._request = request
        self._steps = 0
        self._step_rewards: list[float] = []  # of tool calls and turns

    async def open(self) -> None:
        """Open it. Raises StepFailed."""
        await self._client.open()

    @property
    def first_items(self) -> Sequence[responses_pb2.Item]:
        """What the environment says first."""
        return self._client.opened.items

    @property
    def takes_turns(self) -> bool:
        """Whether the environment answers the model's messages."""
        return self._client.environment.multi_turn

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Its function tools: name, description and parameters."""
        return [tool_schema(tool) for tool in self._client.opened.tools]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """A tool's answer as text, and whether it is an error. Raises StepFailed."""
        number = self._next()
        calling = self._client.call_tool(
            name, dumps(arguments), f"call_{number}", f"{self._request}/{number}"
        )
        reply: resource_pb2.CallToolResponse = await self._step(calling)
        text = _text(reply)
        self.calls.append((name, text))
        if reply.HasField("reward"):
            self._step_rewards.append(reply.reward)
        return text, reply.outcome != pb.TOOL_OUTCOME_OK

    async def turn(self, new: Sequence[responses_pb2.Item]) -> Sequence[responses_pb2.Item]:
        """The environment's turn after these items. Raises StepFailed."""
        number = self._next()
        reply: resource_pb2.NextTurnResponse = await self._step(
            self._client.next_turn(new, f"{self._request}/{number}")
        )
        if reply.HasField("reward"):
            self._step_rewards.append(reply.reward)
        if reply.done:
            self.last_items = reply.items
        return reply.items

    async def judge(
        self, items: Sequence[responses_pb2.Item], stop_reason: pb.StopReason.ValueType
    ) -> pb.Verification:
        """The verdict. Raises NotJudged if there is no reward."""
        if self.failure is not None:
            raise NotJudged(str(self.failure))
        try:
            verified, _ = await self._client.verify(items, stop_reason, self._step_rewards)
        except StepFailed as error:
            raise NotJudged(str(error)) from error
        verdict = verified.verification
        if not verdict.HasField("reward"):
            raise NotJudged(
                f"the environment returned no reward: {verdict.reason or 'no reason given'}"
            )
        return verdict

    async def close(self) -> None:
        """Close it; bounded."""
        await self._client.close()

    def _next(self) -> int:
        self._steps += 1
        return self._steps

    async def _step(self, work: Any) -> Any:
        try:
            reply = await work
        except StepFailed as error:
            self.failure = self.failure or error
            raise
        self.done = self.done or reply.done
        return reply


class MeshSessions:
    """Where sessions of one environment are opened, and those that are open, by their token."""

    def __init__(self, directory: PeerDirectory, name: str, call_s: float, verify_s: float) -> None:
        self.name = name
        self.open_now: dict[str, MeshSession] = {}
        self._environments = Environments(
            directory, call_s, verify_s, agent="", agent_instance_id=""
        )

    @asynccontextmanager
    async def session(self, task: pb.Task) -> AsyncIterator[MeshSession]:
        """An open session, closed after the block. Raises StepFailed."""
        whole = pb.Task()
        whole.CopyFrom(task)
        whole.environment = self.name
        seed = task.seed if task.HasField("seed") else None
        attempt = AttemptId(f"verifiers/{uuid.uuid4().hex}", 1, seed)
        clock = RolloutClock(None, math.inf)
        session = MeshSession(
            SessionClient(self._environments, self.name, attempt, whole, clock), attempt.name
        )
        self.open_now[session.token] = session
        try:
            await session.open()
            yield session
        finally:
            del self.open_now[session.token]
            await session.close()


@asynccontextmanager
async def sessions_at(
    place: str, environment: str, call_s: float, verify_s: float
) -> AsyncIterator[MeshSessions]:
    """The sessions of the environment at a place; see `open_environment`.

    Raises UserError for an environment whose episodes verifiers can't drive.
    """
    async with open_environment(place, environment) as (directory, name):
        instance = await directory.pick(RESOURCE, name, timeout=_ASK_S)
        about: resource_pb2.GetEnvironmentResponse = await directory.peer(instance).GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=_ASK_S
        )
        if about.judges_groups:
            raise UserError(
                f"environment {name!r} scores the repeats of a task together, but the "
                "library `verifiers` scores each repeat alone"
            )
        if about.plays:
            raise UserError(
                f"environment {name!r} runs its episodes itself, but the library `verifiers` "
                "does not support this"
            )
        yield MeshSessions(directory, name, call_s, verify_s)


async def example_tasks(place: str, environment: str) -> tuple[str, list[pb.Task]]:
    """The environment's name and its example tasks."""
    async with open_environment(place, environment) as (directory, name):
        peer = directory.peer(await directory.pick(RESOURCE, name, timeout=_ASK_S))
        found: list[pb.Task] = []
        token = ""
        while True:
            request = resource_pb2.ListTasksRequest(page_token=token)
            reply: resource_pb2.ListTasksResponse = await peer.ListTasks(request, timeout=_ASK_S)
            found += reply.tasks
            token = reply.next_page_token
            if not token:
                return name, found


def tool_schema(tool: responses_pb2.Tool) -> dict[str, Any]:
    """A function tool as MCP lists it."""
    function = tool.function
    parameters = loads(function.parameters_json) if function.parameters_json else {}
    return {
        "name": function.name,
        "description": function.description,
        "parameters": parameters if isinstance(parameters, dict) else {},
    }


def _text(reply: resource_pb2.CallToolResponse) -> str:
    if reply.WhichOneof("output") != "parts":
        return bytes_to_text(reply.text)
    output = responses_pb2.FunctionCallOutput(parts=reply.parts)
    return text_of(responses_pb2.Item(function_call_output=output))
