"""A client's OpenEnv session: it plays episodes one after another, each begun by a reset."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.protocols.facade import ANSWER, EnvironmentFacade
from gymmesh_resource.protocols.openenv.documents import (
    first_observation,
    message_observation,
    state_document,
    tool_observation,
    tools_observation,
)
from gymmesh_resource.protocols.replies import object_field, text_field, whole_number
from gymmesh_resource.protocols.session import ProtocolSession, ProtocolStep
from gymmesh_resource.protocols.task_api import task_of
from gymmesh_resource.protocols.tasks import TaskTable
from gymmesh_responses import JsonValue
from gymmesh_runtime.errors import MeshError, field_invalid

_LONGEST_ID: Final = 255
_TASK_KEYS: Final = ("task_id", "split", "responses_create_params", "prompt")


class TaskChooser:
    """Which task a reset begins: the one that it names; else by its seed; else the next."""

    def __init__(self, tasks: TaskTable) -> None:
        self._tasks = tasks
        self._next = itertools.count()

    def choose(self, data: Mapping[str, Any]) -> rollout_pb2.Task:
        """The task. Raises FIELD_INVALID, TASK_INVALID."""
        if isinstance(row := data.get("task"), dict):
            return task_of(self._tasks, row)
        if any(data.get(key) is not None for key in _TASK_KEYS):
            return task_of(self._tasks, data)
        episode_id = text_field(data, "episode_id")
        if episode_id and (found := self._tasks.find(episode_id)) is not None:
            return found
        split = self._tasks.splits[0]
        seed = seed_in(data)
        number = next(self._next) if seed is None else seed
        return self._tasks.task(split, number % self._tasks.count(split))


class OpenEnvSession:
    """One session.

    Attributes:
        attached: whether a socket holds it. closing: it is to be closed when the socket goes.
    """

    def __init__(self, facade: EnvironmentFacade, chooser: TaskChooser) -> None:
        self._facade = facade
        self._chooser = chooser
        self._episode: ProtocolSession | None = None
        self._episode_id: str | None = None
        self._used = time.monotonic()
        self.attached = False
        self.closing = False

    def idle_s(self) -> float:
        """Seconds since it was used."""
        return 0.0 if self.attached else time.monotonic() - self._used

    async def reset(self, data: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Begin an episode; the one before it ends. Raises MeshError."""
        self._used = time.monotonic()
        episode_id = text_field(data, "episode_id")
        if len(episode_id) > _LONGEST_ID:
            raise field_invalid("episode_id", f"is longer than {_LONGEST_ID} characters")
        seed = seed_in(data)
        task = self._chooser.choose(data)
        await self.close()
        self._episode = await self._facade.open(task, "openenv", seed)
        self._episode_id = episode_id or self._episode.id
        return first_observation(self._episode)

    async def step(self, action: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Take an action. Raises MeshError."""
        self._used = time.monotonic()
        match action.get("type"):
            case "list_tools":
                return tools_observation(self.tools())
            case "call_tool":
                name = text_field(action, "tool_name")
                return tool_observation(
                    name, await self.call(name, object_field(action, "arguments"))
                )
            case "answer":
                answer = action.get(ANSWER)
                if not isinstance(answer, str):
                    raise field_invalid(ANSWER, "must be text")
                return message_observation(await self._playing().say(answer))
        raise field_invalid("type", "of an action must be 'list_tools', 'call_tool' or 'answer'")

    def tools(self) -> list[responses_pb2.FunctionTool]:
        """The tools of the episode, or of the environment before there is one."""
        tools = self._facade.tools if self._episode is None else self._episode.tools
        return [*tools, self._facade.answer_tool(tools)]

    async def call(self, name: str, arguments: dict[str, Any]) -> ProtocolStep:
        """Call a tool of `tools`. Raises MeshError."""
        self._used = time.monotonic()
        episode = self._playing()
        if name != self._facade.answer_tool(episode.tools).name:
            return await episode.act(name, arguments)
        answer = arguments.get(ANSWER)
        if not isinstance(answer, str):
            problem = f"{name} needs exactly one argument: {ANSWER!r}, which is text."
            return ProtocolStep([problem], rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS)
        return await episode.say(answer)

    def state(self) -> dict[str, JsonValue]:
        """Where the episode is."""
        return state_document(self._episode_id, self._episode)

    async def close(self) -> None:
        """End the episode; harmless when there is none."""
        episode, self._episode = self._episode, None
        if episode is not None:
            await episode.close()

    def _playing(self) -> ProtocolSession:
        if self._episode is None:
            raise MeshError(
                errors_pb2.ERROR_REASON_SESSION_STATE,
                "No episode is open. Send reset first.",
                metadata={"state": "new"},
            )
        return self._episode


def seed_in(data: Mapping[str, Any]) -> int | None:
    """The seed of a reset. Raises FIELD_INVALID."""
    seed = whole_number(data, "seed")
    if seed is not None and not 0 <= seed < 1 << 63:
        raise field_invalid("seed", "must be at least 0 and less than 2^63")
    return seed
