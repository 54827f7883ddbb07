"""The taskset: an environment's tasks, each with the environment's verdict as its reward."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.dialects import parse_message

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import TaskDefaults
from gymmesh_resource import Task
from gymmesh_responses import loads, params_to_dict
from gymmesh_trainers.trainer_collector import messages_of
from gymmesh_trainers.verifiers.prompts import messages_from, prompt_of
from gymmesh_trainers.verifiers.sessions import MeshSession, example_tasks
from gymmesh_trainers.verifiers.toolset import MeshState, MeshToolset
from gymmesh_trainers.verifiers.transcript import items_of, stop_reason_of, with_outputs


class MeshData(vf.TaskData):  # type: ignore[misc]  # verifiers ships no types here
    """`row`: the task as a row of a task file."""

    row: dict[str, Any]


class MeshTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]  # as above
    """Which environment, and which of its tasks.

    place: the environment: a name (`math`), `file.py:Class`, a configuration (`mesh.yaml`), or the
        address where it is served (`HOST:PORT`, `consul://…`). environment: the environment's name,
        if the place has several. tasks: a task file; default: the environment's example tasks.
    call_s, verify_s: time limits in seconds: of a tool call or a turn, and of the verdict.
    """

    place: str
    environment: str = ""
    tasks: Path | None = None
    call_s: float = 120.0
    verify_s: float = 600.0


class MeshTask(vf.Task[MeshData, MeshState]):  # type: ignore[misc]  # as above
    """A task with the session in which it is played."""

    session: MeshSession | None = None

    @property
    def key(self) -> str:
        """The task's id."""
        return str(self.data.row["task_id"])

    def played_in(self, session: MeshSession) -> MeshTask:
        """The task in a session, with what the environment says first behind its prompt."""
        said = map(parse_message, messages_from(session.first_items, self.key))
        whole: MeshTask = self.with_data(prompt=[*self.data.prompt, *said])
        whole.session = session
        return whole

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Tell the tool server which session it is."""
        session = self._session()
        trace.state.url, trace.state.token = session.url, session.token
        trace.state.tools = session.tools

    @vf.stop  # type: ignore[untyped-decorator]  # as above
    async def environment_done(self, trace: vf.Trace) -> bool:
        """Whether the environment said that the episode is over."""
        return self._session().done

    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator]  # as above
    async def verdict(self, trace: vf.Trace) -> float:
        """The environment's verdict; its components become metrics. Raises NotJudged."""
        session = self._session()
        names = [tool["name"] for tool in session.tools]
        items = with_outputs(items_of(trace.branches, names), session.calls)
        items += session.last_items
        verdict = await session.judge(items, stop_reason_of(trace, done=session.done))
        for component in verdict.components:
            trace.record_metric(component.name, component.value)
        trace.info["explanation"] = verdict.explanation
        return float(verdict.reward)

    def _session(self) -> MeshSession:
        if self.session is None:
            raise RuntimeError("a gymmesh task runs in its gymmesh environment; remove env.id")
        return self.session


class MeshTaskset(vf.Taskset[MeshTask, MeshTasksetConfig]):  # type: ignore[misc]  # as above
    """The tasks of an environment of gymmesh."""

    @classmethod
    def toolsets(cls, config: MeshTasksetConfig) -> list[Any]:
        """The tool server, shared by all episodes."""
        return [MeshToolset(vf.SharedToolsetConfig())]

    def load(self) -> Iterator[MeshTask]:
        """Each task once. Raises UserError for one that verifiers has no prompt for."""
        for message in self._messages():
            prompt = prompt_of(message)
            data = MeshData(name=message.task_id, prompt=prompt, row=row_of(message))
            yield MeshTask(data, self.config.task)

    def _messages(self) -> Iterator[pb.Task]:
        if self.config.tasks is not None:
            yield from messages_of(self.config.tasks, TaskDefaults("-", "-"))
            return
        examples = example_tasks(self.config.place, self.config.environment)
        # A thread, as the caller's may run an event loop already.
        with ThreadPoolExecutor(1) as executor:
            _, found = executor.submit(asyncio.run, examples).result()
        yield from found


def row_of(message: pb.Task) -> dict[str, Any]:
    """A task as a row of a task file."""
    row: dict[str, Any] = {
        "task_id": message.task_id,
        "responses_create_params": params_to_dict(message.params),
    }
    if message.HasField("seed"):
        row["seed"] = message.seed
    payload = loads(message.payload_json) if message.payload_json else {}
    return row | payload if isinstance(payload, dict) else row


def message_of(row: dict[str, Any]) -> pb.Task:
    """The task of a row."""
    return Task.of(row).message
