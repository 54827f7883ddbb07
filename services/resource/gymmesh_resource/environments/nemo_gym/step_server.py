"""A step server: `/reset`, then `/step` with each whole answer of the model; rewards add up.

Under an agent of the mesh the environment takes turns. Tools of such a server are run by `/step`,
those of one answer together, so that rows with tools are played here (`program: environment`).
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec

from gymmesh_resource.environment import Turn
from gymmesh_resource.environments.nemo_gym.documents import PARAMS, response_of, row_of
from gymmesh_resource.environments.nemo_gym.policy import ask_policy, policy_client
from gymmesh_resource.environments.nemo_gym.protocol import NemoProtocol, RemoteSession
from gymmesh_resource.environments.nemo_gym.server import FAULT, VERIFIER_FAULT, Reason
from gymmesh_resource.errors import TaskInvalid
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_resource.rollout import Rollout, Transcript
from gymmesh_resource.task import Task
from gymmesh_resource.verdicts import Outcome, Verdict

T = TypeVar("T")
_LOGGER = logging.getLogger("gymmesh.resource.nemo_gym")


@dataclass(slots=True)
class StepSession(RemoteSession):
    """An episode of the server.

    row: the task's row. observation: the server's first text; may be empty. reset_info: the info of
    `/reset`. total: the sum of the rewards so far. steps: the number of steps. seen: the number of
    transcript items up to the last step, its observation included. over: terminated or truncated.
    info: the info of the last step.
    """

    row: dict[str, Any] = field(default_factory=dict)
    observation: str = ""
    reset_info: Mapping[str, Any] = field(default_factory=dict)
    total: float = 0.0
    steps: int = 0
    seen: int = 0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    played: bool = False

    @property
    def over(self) -> bool:
        """Whether no step may follow."""
        return self.terminated or self.truncated


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool of the server answered."""

    call_id: str
    output: str

    def item(self) -> dict[str, Any]:
        """As an item of a conversation."""
        return {"type": "function_call_output", "call_id": self.call_id, "output": self.output}


class ResetAnswer(msgspec.Struct, frozen=True):
    """What a server answers to `/reset`."""

    observation: str | None = None
    info: dict[str, Any] = {}


class StepAnswer(msgspec.Struct, frozen=True):
    """What a server answers to `/step`."""

    reward: float
    terminated: bool
    truncated: bool
    observation: str | None = None
    info: dict[str, Any] = {}


class StepProtocol(NemoProtocol):
    """Episodes of steps. The reward is the sum of theirs."""

    multi_turn: ClassVar[bool] = True
    plays: ClassVar[bool] = True

    async def start(self, task: Task) -> StepSession:
        """Reset an episode of the server with the task's row."""
        remote = StepSession(row=row_of(task))
        document = await self.server.ask("reset", remote.row, remote.cookies, FAULT)
        answer = self._read("reset", document, ResetAnswer, FAULT)
        remote.observation, remote.reset_info = answer.observation or "", answer.info
        return remote

    def opening(self, remote: StepSession) -> str:
        return remote.observation

    async def call(self, remote: StepSession, name: str, arguments: dict[str, Any]) -> str:
        """Refused: `/step` runs the tools of an answer together, and needs the whole answer."""
        raise TaskInvalid(
            f"{PARAMS}.tools",
            "can't be called one by one, because the server's endpoint /step runs all tools of a "
            "model answer together. Use the agent program with program: environment",
        )

    async def turn(self, remote: StepSession, new: Transcript) -> Turn:
        """A step with the model's answer."""
        step = await self._step(remote, response_of(new.items, remote.row[PARAMS], None), FAULT)
        remote.seen += len(new.items) + bool(step.observation)
        if not (step.observation or remote.over):
            raise self.server.error(
                "step", "its answer neither ends the episode nor has a message", FAULT
            )
        return Turn(step.observation or (), step.reward, remote.over)

    async def play(self, remote: StepSession, task: Task, endpoint: ModelEndpoint) -> None:
        """Step after step until the episode is over, as NeMo Gym's own agent does it."""
        remote.played = True
        params = {**remote.row[PARAMS], "model": endpoint.model}
        said = params.get("input") or []
        items = [_user(said)] if isinstance(said, str) else list(said)
        if remote.observation:
            items.append(_user(remote.observation))
        async with policy_client() as http:
            while not remote.over:
                response = await ask_policy(http, endpoint, {**params, "input": items})
                if response is None:
                    return
                items += response["output"]
                step = await self._step(remote, response, FAULT)
                listed = step.info.get("tool_outputs") or []
                outputs = self._read("step", listed, list[ToolOutput], FAULT)
                items += [output.item() for output in outputs]
                if step.observation:
                    items.append(_user(step.observation))

    async def verify(self, remote: StepSession, rollout: Rollout) -> Outcome:
        """The sum of the steps' rewards. An answer that a limit of the policy cut short has had no
        turn, and is stepped here.
        """
        rest = rollout.items[remote.seen :]
        if not (remote.over or remote.played) and rest:
            cut = response_of(rest, remote.row[PARAMS], rollout.stop_reason)
            await self._step(remote, cut, VERIFIER_FAULT)
        if not remote.steps:
            raise self.server.error("step", "the episode has no step to judge", VERIFIER_FAULT)
        evidence = {
            "steps": remote.steps,
            "terminated": remote.terminated,
            "truncated": remote.truncated or not remote.terminated,
            "info": remote.info,
        }
        return Verdict(remote.total, evidence=evidence)

    async def end(self, remote: StepSession) -> None:
        """Close the episode, where the server says that it wants to know."""
        if remote.reset_info.get("supports_explicit_close") is not True:
            return
        answer = await self.server.post("close", {}, remote.cookies, FAULT)
        if not answer.ok:
            _LOGGER.warning("%s/close answered %d", self.server.url, answer.status)

    async def _step(
        self, remote: StepSession, response: dict[str, Any], reason: Reason.ValueType
    ) -> StepAnswer:
        """Post one answer of the model, and take the step into account."""
        body = remote.row | {"response": response}
        if remote.reset_info.get("supports_step_idempotency") is True:
            body["_ng_step_request_id"] = secrets.token_hex(16)
        document = await self.server.ask("step", body, remote.cookies, reason)
        step = self._read("step", document, StepAnswer, reason)
        if not math.isfinite(step.reward + remote.total):
            raise self.server.error("step", "its reward is not a finite number", reason)
        remote.total += step.reward
        remote.steps += 1
        remote.terminated, remote.truncated = step.terminated, step.truncated
        remote.info = step.info
        return step

    def _read(self, name: str, answer: object, kind: type[T], reason: Reason.ValueType) -> T:
        """An answer of this kind. Raises an error of the reason."""
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            problem = f"its answer can't be read: {error}"
            raise self.server.error(name, problem, reason) from None


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}
