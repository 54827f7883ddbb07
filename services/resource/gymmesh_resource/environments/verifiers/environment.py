"""Tasksets and environments of verifiers, which run in verifiers' own interpreter.

By default verifiers plays the whole episode, with its harness, against the model that the agent
offers (`play`), and scores it. With `solver: ours` the mesh's own agent answers the task's prompt,
and the taskset scores the conversation.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_resource import (
    DefinitionError,
    Environment,
    ModelEndpoint,
    Rollout,
    Session,
    Skipped,
    Task,
    TaskInvalid,
    Verdict,
)
from gymmesh_resource.environments.verifiers.conversation import conversation_of
from gymmesh_resource.environments.verifiers.results import EpisodeFailed, verdict_of
from gymmesh_resource.peer_processes import (
    PeerFault,
    PeerOptions,
    PeerProcess,
    PeerRaised,
    SharedPeer,
    with_process,
)
from gymmesh_runtime.errors import MeshError

_KEY: Final = "verifiers"
_NO_VERIFIERS: Final = ("No module named 'verifiers'", "No module named 'verifiers.v1'")
_RUNNER: Final = Path(__file__).with_name("runner.py")
_PAGE: Final = 500
_VERIFIER_FAULT: Final = errors_pb2.ERROR_REASON_VERIFIER_FAULT
# An episode's own deadline is the agent's: this bounds one without.
_EPISODE_S: Final = 86_400.0
# A process that failed to start may take this long to end.
_CLOSE_S: Final = 10.0
_LOGGER = logging.getLogger("gymmesh.resource.verifiers")
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


@dataclass(slots=True)
class PlayedEpisode:
    """verifiers' result of a session's episode; None: it was not played to its end."""

    result: dict[str, Any] | None = None


class VerifiersEnvironment(Environment[PlayedEpisode]):
    """Environments of Prime Intellect's library `verifiers`, run and scored by its code."""

    version = "1"
    state = PlayedEpisode
    # A taskset declares no bounds.
    reward_range = (float("-inf"), float("inf"))

    def __init__(
        self,
        *,
        python: str,
        taskset: str | dict[str, Any],
        env: dict[str, Any] | None = None,
        solver: Literal["theirs", "ours"] = "theirs",
        limit: Annotated[int, msgspec.Meta(ge=1)] | None = None,
        unsandboxed: bool = False,
        variables: dict[str, str] | None = None,
        start_timeout_s: _Seconds = 300.0,
    ) -> None:
        """Options.

        python: the interpreter in which verifiers and the taskset are installed.
        taskset: the id of a taskset, or a path to its module; or verifiers' own configuration of
            it, `id` and further keys.
        env: the rest of verifiers' `[env]` block: `id`, `agent` with `harness`, `runtime`,
            `max_turns`, and so on.
        solver: who plays the episode: verifiers' harness, for an agent with `program: environment`;
            or the mesh's agent, for tasksets that score a conversation alone.
        limit: only the first tasks; needed for a taskset without end.
        unsandboxed: allow a harness that runs the model's commands on this machine, as one does in
            verifiers' runtime `subprocess`.
        variables: environment variables of verifiers' process, which gets none of the service's
            but PATH, HOME, the language and where certificates are.
        start_timeout_s: seconds for it to start and to load the tasks.
        """
        given = {"id": taskset} if isinstance(taskset, str) else dict(taskset)
        if not isinstance(given.get("id"), str) or not given["id"]:
            raise ValueError("taskset: the key 'id' is missing or empty")
        given["id"] = _place_of(given["id"])
        self._ours = solver == "ours"
        self._start_s = start_timeout_s
        # The start says by itself that it took too long.
        self.open_timeout_s = start_timeout_s + _CLOSE_S
        self._loading = {
            "taskset": given,
            "env": env or {},
            "limit": limit,
            "unsandboxed": unsandboxed,
            "ours": self._ours,
        }
        self._options = PeerOptions(
            name="verifiers",
            python=python,
            script=_RUNNER,
            env=_path_of(python) | (variables or {}),
            start_s=start_timeout_s,
        )
        self._peer: SharedPeer | None = None

    @property
    def plays(self) -> bool:
        return not self._ours

    def tasks(self) -> Iterator[Mapping[str, Any]]:
        """A row for each task of the taskset."""
        yield from self._rows

    async def open(self) -> None:
        """Start the process and load the tasks: in an episode this would take the time of its
        agent. Raises DefinitionError.
        """
        self._peer = SharedPeer(
            lambda: PeerProcess(self._options), "load", self._loading, self._start_s
        )
        try:
            await self._peer.process()
        except PeerFault as error:
            raise DefinitionError(_start_problem(error, self._options.python)) from error

    async def close(self) -> None:
        """End the process, and with it what it started."""
        if self._peer is not None:
            await self._peer.close()

    def check_task(self, task: Task) -> None:
        """The row must name a task by its index, as `tasks` writes it."""
        named = task.require(_KEY, dict)
        index, key = named.get("index"), named.get("key", "")
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise TaskInvalid(
                f"{_KEY}.index", "must be a whole number: the index of the task in the taskset"
            )
        if not isinstance(key, str):
            raise TaskInvalid(f"{_KEY}.key", "must be text")

    async def play(self, session: Session[PlayedEpisode], endpoint: ModelEndpoint) -> None:
        """Have verifiers play the episode and score it."""
        params = {
            **_named(session.task),
            "base_url": endpoint.base_url,
            "api_key": endpoint.key,
            "model": endpoint.model,
        }
        try:
            result = await self._shared.call("play", params, _EPISODE_S, [endpoint.key])
        except PeerFault as error:
            raise _refused(error) or error.as_mesh_error("verifiers", "play") from error
        session.state.result = result
        try:
            verdict_of(result)
        except EpisodeFailed as error:
            if not error.scoring:
                raise _failed(error, errors_pb2.ERROR_REASON_ENVIRONMENT_FAULT, "play") from error

    async def verify(self, session: Session[PlayedEpisode], rollout: Rollout) -> Verdict | Skipped:
        """verifiers' verdict on the played episode, or on the conversation."""
        result = await self._scored(rollout) if self._ours else session.state.result
        if result is None:
            raise MeshError(
                _VERIFIER_FAULT,
                "The library verifiers did not run the episode to its end, so the episode has no "
                "score. Give the agent more time (timeout_s), or set a limit of turns "
                "(env.agent.max_turns).",
                metadata={"verifier": "verifiers", "stage": "verify"},
            )
        try:
            return verdict_of(result)
        except EpisodeFailed as error:
            raise _failed(error, _VERIFIER_FAULT, "verify") from error

    async def _scored(self, rollout: Rollout) -> dict[str, Any]:
        messages = conversation_of(rollout.task.message.params, rollout.items)
        params = {**_named(rollout.task), "messages": messages}
        try:
            scored: dict[str, Any] = await self._shared.call("score", params, _EPISODE_S)
        except PeerFault as error:
            refused = _refused(error)
            raise refused or error.as_mesh_error("verifiers", "verify", _VERIFIER_FAULT) from error
        return scored

    @property
    def _shared(self) -> SharedPeer:
        if self._peer is None:
            raise RuntimeError("the environment is not open")
        return self._peer

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        try:
            return with_process(self._options, self._listed)
        except PeerFault as error:
            raise DefinitionError(_start_problem(error, self._options.python)) from error

    async def _listed(self, process: PeerProcess) -> list[dict[str, Any]]:
        loaded = await process.call("load", self._loading, self._start_s)
        rows: list[dict[str, Any]] = []
        while len(rows) < loaded["tasks"]:
            asked = {"start": len(rows), "count": _PAGE}
            page = await process.call("tasks", asked, self._start_s)
            rows += [_row(loaded["id"], len(rows) + n, task) for n, task in enumerate(page)]
        return rows


def _row(taskset: str, index: int, task: Mapping[str, Any]) -> dict[str, Any]:
    # A task without a prompt is opened by verifiers; the row says which one it is.
    messages = task["messages"] or [{"role": "user", "content": task["name"] or f"task {index}"}]
    return {
        "task_id": f"{taskset.rpartition('/')[2]}-{index}",
        "prompt": [_input_message(message) for message in messages],
        _KEY: {"index": index, "key": task["key"]},
    }


def _input_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of verifiers' as an item of ours."""
    content = message.get("content")
    if isinstance(content, list):
        content = [_input_part(part) for part in content]
    return {"role": message["role"], "content": content or ""}


def _input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}


def _named(task: Task) -> dict[str, Any]:
    return {"index": task.payload[_KEY]["index"], "key": task.payload[_KEY].get("key", "")}


def _place_of(taskset: str) -> str:
    """The id of a taskset, or its module's path in full. Raises ValueError where there is none."""
    if os.sep in taskset and Path(taskset).exists():
        return str(Path(taskset).resolve())
    if taskset.endswith(".py") or taskset.startswith((f".{os.sep}", f"..{os.sep}", os.sep)):
        raise ValueError(f"taskset: there is no file {taskset} (current folder: {Path.cwd()})")
    return taskset


def _path_of(python: str) -> dict[str, str]:
    """The interpreter's programs go first: verifiers starts `uv`."""
    folder = str(Path(python).parent) if os.sep in python else ""
    return {"PATH": os.pathsep.join(filter(None, (folder, os.environ.get("PATH", os.defpath))))}


def _refused(error: PeerFault) -> TaskInvalid | None:
    """The task's own fault, where the taskset has no such task."""
    if isinstance(error, PeerRaised) and error.kind == "LookupError":
        return TaskInvalid(_KEY, error.message)
    return None


def _failed(
    error: EpisodeFailed, reason: errors_pb2.ErrorReason.ValueType, stage: str
) -> MeshError:
    owner = "verifier" if reason == _VERIFIER_FAULT else "environment"
    return MeshError(reason, f"verifiers: {error}.", metadata={owner: "verifiers", "stage": stage})


def _start_problem(error: PeerFault, python: str) -> str:
    if isinstance(error, PeerRaised) and error.message.startswith(_NO_VERIFIERS):
        return (
            f"The interpreter {python} does not have the package `verifiers`. Run {python} -m pip "
            "install 'verifiers>=0.4'"
        )
    return f"the library verifiers can't load the taskset: {error}"
