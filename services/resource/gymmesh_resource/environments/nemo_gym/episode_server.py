"""An Environment Server, or an agent server, whose `/run` plays and judges a whole episode.

The environment is the endpoint of NeMo Gym's model server meanwhile (model_server.py), so that the
policy answers every call of the episode.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from gymmesh_resource.environments.nemo_gym.documents import PARAMS, BadVerdict, row_of, verdict_of
from gymmesh_resource.environments.nemo_gym.model_server import EPISODE_KEY, ModelServer
from gymmesh_resource.environments.nemo_gym.protocol import NemoProtocol, RemoteSession
from gymmesh_resource.environments.nemo_gym.server import FAULT, VERIFIER_FAULT, NemoServer
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_resource.rollout import Rollout
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome

_FAILED: Final = "_ng_failure_class"


@dataclass(slots=True)
class EpisodeSession(RemoteSession):
    """sent: the body of `/run`. result: its answer, once the episode is over."""

    sent: Mapping[str, Any] | None = None
    result: dict[str, Any] | None = None


class EpisodeProtocol(NemoProtocol):
    """Whole episodes.

    model: the endpoint of NeMo Gym's model server. taskset: its name, for an Environment Server
    that takes typed episodes; empty: the server takes rows.
    """

    plays: ClassVar[bool] = True

    def __init__(self, server: NemoServer, model: ModelServer, taskset: str) -> None:
        super().__init__(server)
        self._model = model
        self._taskset = taskset

    async def open(self) -> None:
        """Also serves the model: the port must be free."""
        await super().open()
        await self._model.open()

    async def close(self) -> None:
        await self._model.close()
        await super().close()

    async def start(self, task: Task) -> EpisodeSession:
        """Nothing yet: `/run` does all."""
        return EpisodeSession()

    async def play(self, remote: EpisodeSession, task: Task, endpoint: ModelEndpoint) -> None:
        """Have the server run the episode, and keep what it answers."""
        # Also what opens the model to the episode, so that nobody can guess it.
        episode = f"g{secrets.token_hex(16)}"
        remote.sent = row = _marked(row_of(task), episode)
        body = self._typed(row, task, episode) if self._taskset else _flat(row, episode)
        with self._model.serving(episode, endpoint):
            answer = await self.server.ask("run", body, remote.cookies, FAULT)
        failure = answer.get("failure")
        if failure is not None or _FAILED in answer:
            raise self.server.error("run", _failed(failure, answer), FAULT)
        result = answer.get("result") if self._taskset else answer
        if not isinstance(result, dict):
            raise self.server.error("run", "its answer has no result", FAULT)
        remote.result = result

    async def verify(self, remote: EpisodeSession, rollout: Rollout) -> Outcome:
        """The verdict that came with the episode."""
        if remote.result is None:
            problem = (
                "the server did not run the episode to its end, so the episode has no verdict. "
                "Use the agent program with program: environment"
            )
            raise self.server.error("run", problem, VERIFIER_FAULT)
        try:
            return verdict_of(remote.result, remote.sent or {})
        except BadVerdict as error:
            problem = f"its answer is not a verdict: {error}"
        raise self.server.error("run", problem, VERIFIER_FAULT)

    def _typed(self, row: dict[str, Any], task: Task, episode: str) -> dict[str, Any]:
        data = {key: value for key, value in row.items() if key != PARAMS}
        return {
            "episode_id": {"rollout_id": episode, "attempt": 0},
            "task": {
                "task_id": {"taskset": self._taskset, "task_id": task.id},
                "task_input": {PARAMS: row[PARAMS], "task_data": data},
            },
        }


def _marked(row: dict[str, Any], episode: str) -> dict[str, Any]:
    """The row with the episode in its parameters' metadata, which agents send to the model."""
    metadata = row[PARAMS].get("metadata") or {}
    return row | {PARAMS: row[PARAMS] | {"metadata": {**metadata, EPISODE_KEY: episode}}}


def _flat(row: dict[str, Any], episode: str) -> dict[str, Any]:
    """As NeMo Gym's collection sends a row."""
    return row | {"_ng_rollout_id": episode, "_ng_task_index": 0, "_ng_rollout_index": 0}


def _failed(failure: object, answer: Mapping[str, Any]) -> str:
    """What a server says of an episode that failed: its kind, and not its words, which may hold
    anything.
    """
    stage: object = None
    if isinstance(failure, dict):
        stage = failure.get("failure_kind") or failure.get("stage")
    else:
        stage = answer.get("_ng_failure_stage") or answer.get(_FAILED)
    return f"the episode failed ({stage:.100})" if isinstance(stage, str) else "the episode failed"
