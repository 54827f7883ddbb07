"""A server of the Open Reward Standard as an environment.

A session is one of the server's, with its prompt and its tools; the rewards of the tools' calls
are the verdict.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.environment import Environment
from gymmesh_resource.environments._base64_images import tool_answer, user_message
from gymmesh_resource.environments._remote_http import root_url
from gymmesh_resource.environments._step_rewards import EpisodeRule, verdict_of
from gymmesh_resource.environments._tool_schemas import schema_problem
from gymmesh_resource.environments.ors.client import (
    NoOrsAnswer,
    OrsClient,
    Refused,
    ServerAccess,
    ToolRaised,
)
from gymmesh_resource.environments.ors.documents import (
    BadAnswer,
    CallAnswer,
    TerminalTool,
    blocks,
    offered_tools,
    read_call,
    task_of,
)
from gymmesh_resource.environments.ors.split_sizes import split_size
from gymmesh_resource.errors import TaskInvalid, ToolError
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.session import Session
from gymmesh_resource.task import Task
from gymmesh_resource.tools import ToolResult
from gymmesh_resource.verdicts import Outcome
from gymmesh_resource.workers import Slots
from gymmesh_runtime.errors import MeshError

_LOGGER = logging.getLogger("gymmesh.resource.ors")
_Reason: TypeAlias = errors_pb2.ErrorReason
_FAULT = _Reason.ERROR_REASON_ENVIRONMENT_FAULT
_VERIFIER_FAULT = _Reason.ERROR_REASON_VERIFIER_FAULT
# Seconds that the end of a session may take.
_END_S = 5.0
_MOST_REWARDS = 1000
_GONE = (404, 410)


@dataclass(slots=True)
class _Remote:
    """The server's part of a session, and what its calls have brought.

    ended: why the server has no such session any more. judging: whether the terminal tool was
    called, which acts once.
    """

    sid: str
    held: AsyncExitStack
    tools: dict[str, str] = field(default_factory=dict)
    terminal: TerminalTool | None = None
    rewards: list[float] = field(default_factory=list)
    calls: int = 0
    metadata: Any = None
    ended: str = ""
    judging: bool = False


class OrsEnvironment(Environment[_Remote]):
    """Tasks, prompts, tools and rewards of a server of the Open Reward Standard (ORS).

    The reward is made of the rewards of the tools' calls.
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
        environment: str = "",
        split: str = "train",
        tasks: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None,
        key_variable: str = "",
        secrets: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        reward: EpisodeRule = "sum",
        unrewarded: float | None = None,
        ping_s: Annotated[float, msgspec.Meta(ge=1, le=600)] = 10.0,
        max_sessions: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 512,
        max_answer_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 30)] = 16 << 20,
    ) -> None:
        """Options.

        url: the server's root, such as http://127.0.0.1:8080. headers: sent with every request.
        environment: its name at the server; empty: the server's first.
        split: whose tasks are the examples. tasks: how many of them; null: the server is asked.
        key_variable: the environment variable that holds the server's API key.
        secrets: for the environment at the server, by name, each with the environment variable
            that holds it.
        reward: the episode's reward, of those of its calls: their sum, the last, or the largest.
        unrewarded: the reward of an episode none of whose calls had one; null: it has none.
        ping_s: seconds between signs of life of a session.
        max_sessions: sessions at a time; those beyond it wait. max_answer_bytes: of one answer.
        """
        self._url = root_url(url)
        self._name, self._split, self._tasks = environment, split, tasks
        self._access = ServerAccess(
            _variable("key_variable", key_variable) if key_variable else "",
            {name: _variable(f"secrets.{name}", one) for name, one in (secrets or {}).items()},
        )
        self._headers = headers or {}
        self._rule, self._unrewarded = reward, unrewarded
        self._ping_s = ping_s
        self._slots = Slots("sessions", max_sessions, of_sandboxes=False)
        # Each session may call a tool and say that it lives.
        self._connect = partial(
            OrsClient,
            self._url,
            self._access,
            headers=self._headers,
            max_connections=0,
            max_bytes=max_answer_bytes,
        )
        self._opened: OrsClient | None = None

    async def open(self) -> None:
        """Get the HTTP client ready; the server may still be starting."""
        self._opened = self._connect()

    async def close(self) -> None:
        """Close the connections."""
        client, self._opened = self._opened, None
        if client is not None:
            await client.close()

    def tasks(self) -> Iterable[Mapping[str, Any]]:
        """The tasks of the split, by their places in it; the prompts are the server's."""
        number = self._tasks
        if number is None:
            number = split_size(
                self._url, self._name, self._split, self._headers | self._access.headers
            )
        return [
            {"prompt": [], "ors": {"split": self._split, "index": index}} for index in range(number)
        ]

    def check_task(self, task: Task) -> None:
        task_of(task, self._split)

    async def create_state(self, task: Task, seed: int) -> _Remote:
        """Open a session at the server for the row's task."""
        client = self._client()
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._slots.one())
            try:
                if not self._name:
                    self._name = _first_name(await client.get("list_environments"))
                sid = await client.new_session()
                held.push_async_callback(self._end, sid)
                await client.create(sid, {"env_name": self._name, **task_of(task, self._split)})
            except Refused as error:
                if error.status in (400, 422):
                    raise TaskInvalid(
                        "ors", f"has a task that the server rejects: {error.detail}"
                    ) from error
                raise self._fault("create", error) from error
            except (NoOrsAnswer, ToolRaised, BadAnswer) as error:
                raise self._fault("create", error) from error
            remote = _Remote(sid, held)
            pinging = asyncio.create_task(self._ping(remote))
            held.callback(pinging.cancel)
            remote.held = held.pop_all()
            return remote

    async def close_session(self, session: Session[_Remote]) -> None:
        await session.state.held.aclose()

    async def session_tools(self, session: Session[_Remote]) -> Sequence[Mapping[str, Any]]:
        """The tools of the environment and of the task."""
        client, remote = self._client(), session.state
        try:
            try:
                answer = await client.get_when_started(f"{self._name}/task_tools", remote.sid)
            except Refused as error:
                if error.status != 404:
                    raise
                answer = await client.get(f"{self._name}/tools", remote.sid)
            tools, remote.terminal = offered_tools(answer)
        except (NoOrsAnswer, Refused, BadAnswer) as error:
            raise self._fault("session_tools", error) from error
        for one in tools:
            if problem := schema_problem(one.function["parameters"]):
                bad = f"the tool {one.name!r} is invalid: {problem}"
                raise self._fault("session_tools", bad)
        remote.tools = {one.name: one.tool.name for one in tools}
        return [one.function for one in tools]

    async def opening(self, session: Session[_Remote]) -> list[responses_pb2.Item]:
        """The server's prompt, as a user's message."""
        try:
            path = f"{self._name}/prompt"
            parts = blocks(await self._client().get_when_started(path, session.state.sid))
        except (NoOrsAnswer, Refused, BadAnswer) as error:
            raise self._fault("prompt", error) from error
        return [user_message(parts)] if parts else []

    async def call_other(
        self, session: Session[_Remote], name: str, arguments: dict[str, Any]
    ) -> ToolResult:
        """One call. Arguments that the server refuses are shown to the model."""
        remote = session.state
        tool = remote.tools.get(name)
        if tool is None:
            raise ToolError(f"The environment has no tool {name!r}.")
        if session.done:
            raise ToolError("The episode is over. The tool was not called.")
        answer = await self._call(remote, tool, arguments, _FAULT)
        if answer.error:
            raise ToolError(answer.error)
        return ToolResult(tool_answer(answer.parts), answer.reward, answer.finished)

    async def verify(self, session: Session[_Remote], rollout: Rollout) -> Outcome:
        """The episode's reward; the terminal tool is called first, where the server has one."""
        remote = session.state
        if remote.terminal is not None and not session.done and _ends_with_message(rollout):
            await self._call_terminal(remote, remote.terminal, rollout.answer)
        evidence = {
            "calls": remote.calls,
            "finished": session.done,
            "rewards": remote.rewards[-_MOST_REWARDS:],
            "metadata": remote.metadata,
        }
        return verdict_of(remote.rewards, self._rule, self._unrewarded, evidence)

    async def _call_terminal(self, remote: _Remote, tool: TerminalTool, message: str) -> None:
        if remote.judging:
            raise self._fault("verify", "the terminal tool was already called", _VERIFIER_FAULT)
        remote.judging = True
        answer = await self._call(remote, tool.name, tool.arguments(message), _VERIFIER_FAULT)
        if answer.error:
            raise self._fault("verify", f"{tool.name}: {answer.error}"[:500], _VERIFIER_FAULT)

    async def _call(
        self, remote: _Remote, tool: str, arguments: Any, reason: _Reason.ValueType
    ) -> CallAnswer:
        """What a tool answers; its reward and metadata are kept. Raises a fault of this reason."""
        if remote.ended:
            raise self._fault("call", remote.ended, reason)
        try:
            answer = read_call(await self._client().call(self._name, tool, arguments, remote.sid))
        except ToolRaised as error:
            raise self._fault("call", f"{tool} raised: {error}", reason) from error
        except (NoOrsAnswer, Refused, BadAnswer) as error:
            raise self._fault("call", error, reason) from error
        remote.calls += 1
        remote.metadata = answer.metadata
        if answer.reward is not None:
            remote.rewards.append(answer.reward)
        return answer

    async def _ping(self, remote: _Remote) -> None:
        """Say that the session lives, until it ends; a server ends those that are silent."""
        client = self._client()
        while not remote.ended:
            await asyncio.sleep(self._ping_s)
            try:
                async with asyncio.timeout(self._ping_s):
                    await client.post("ping", {}, remote.sid)
            except Refused as error:
                if error.status in _GONE:
                    remote.ended = "it ended the session"
            except (NoOrsAnswer, TimeoutError):
                pass  # the next call says whether the server is there

    async def _end(self, sid: str) -> None:
        """Delete the session at the server, within a few seconds."""
        try:
            async with asyncio.timeout(_END_S):
                await self._client().post("delete", {}, sid)
                await self._client().post("delete_session", {}, sid)
        except (NoOrsAnswer, Refused, TimeoutError) as error:
            _LOGGER.warning(
                "the ORS server at %s did not delete a session: %s", self._url, str(error)[:200]
            )

    def _client(self) -> OrsClient:
        if self._opened is None:
            raise RuntimeError("the environment is not open")
        return self._opened

    def _fault(self, stage: str, problem: object, reason: _Reason.ValueType = _FAULT) -> MeshError:
        what = "verifier" if reason == _VERIFIER_FAULT else "environment"
        return MeshError(
            reason,
            f"The ORS server at {self._url} failed in {stage}: {problem}.",
            metadata={what: "ors", "stage": stage},
        )


def _variable(option: str, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"{option}: the environment variable {name!r} is not set")
    return value


def _first_name(answer: object) -> str:
    if isinstance(answer, list) and answer and isinstance(answer[0], str):
        return answer[0]
    raise BadAnswer("it lists no environments")


def _ends_with_message(rollout: Rollout) -> bool:
    """Whether the model's last word is a message, which a terminal tool is given."""
    last = rollout.items[-1] if rollout.items else responses_pb2.Item()
    return last.HasField("message") and last.message.role == "assistant"
