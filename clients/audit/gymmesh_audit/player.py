"""Plays attacks through the contract: session, calls, turns, verdict."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_audit.attack import Attack
from gymmesh_audit.gold import Gold, MadeCall, gold_of
from gymmesh_audit.scripted_model import ScriptedModel
from gymmesh_responses import CodecError, dumps, loads, new_message, rollout_reward
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import Instance, PeerDirectory

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
VERIFY: Final = "gymmesh.verify.v1.VerifyService"
AUDIT: Final = "gymmesh.verify.v1.AuditService"
_CALL_S: Final = 120.0
_TURNS: Final = 3
_Reason = errors_pb2.ErrorReason
_NO_TRIAL: Final = frozenset(
    {_Reason.ERROR_REASON_TASK_INVALID, _Reason.ERROR_REASON_FIELD_INVALID}
)

MakeArguments = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Arguments that a tool's JSON Schema allows; None where none were found."""


@dataclass(frozen=True, slots=True)
class Played:
    """The result of an attack.

    reward: the reward, including those of turns if the environment adds them. None without a
    verdict. fault: why there is no verdict. refused: the environment rejected the task or the
    request, which shows nothing about the verifier. memory_bytes: the growth of this process and
    its workers, if it was measured.
    """

    attack: Attack
    task_id: str
    reward: float | None = None
    fault: str = ""
    refused: bool = False
    seconds: float = 0.0
    told: str = ""
    memory_bytes: int | None = None

    @property
    def unjudged(self) -> bool:
        """Whether the verifier returned without a reward: the verdict is pending or skipped."""
        return self.reward is None and not self.fault and not self.refused


class Player:
    """Plays attacks on one environment.

    make_arguments: makes arguments for the policies that call each tool once. scripted: the model
    that replaces the models that the environment calls, if it is in this process.
    """

    def __init__(
        self,
        directory: PeerDirectory,
        instance: Instance,
        *,
        make_arguments: MakeArguments,
        scripted: ScriptedModel | None = None,
    ) -> None:
        self._resource = directory.peer(instance)
        self._verifier = directory.peer(instance, VERIFY)
        self._auditor = directory.peer(instance, AUDIT)
        self._make_arguments = make_arguments
        self._scripted = scripted
        self._ids = itertools.count(1)
        self.about = resource_pb2.GetEnvironmentResponse()

    async def open(self) -> None:
        """Ask the environment for its description. Raises MeshError."""
        self.about = await self._resource.GetEnvironment(
            resource_pb2.GetEnvironmentRequest(), timeout=_CALL_S
        )

    async def example_tasks(self, limit: int) -> list[rollout_pb2.Task]:
        """The environment's own example tasks. Raises MeshError."""
        tasks: list[rollout_pb2.Task] = []
        token = ""
        while len(tasks) < limit:
            request = resource_pb2.ListTasksRequest(page_size=100, page_token=token)
            page = await self._resource.ListTasks(request, timeout=_CALL_S)
            tasks += page.tasks
            token = page.next_page_token
            if not token:
                break
        return tasks[:limit]

    async def golds(self, task: rollout_pb2.Task) -> list[Gold]:
        """The expected answers; empty if the environment provides none. Raises MeshError."""
        request = verify_pb2.GetExpectedRequest(task=task)
        try:
            reply = await self._auditor.GetExpected(request, timeout=_CALL_S)
        except MeshError as error:
            if error.reason in (
                _Reason.ERROR_REASON_NOT_OFFERED,
                _Reason.ERROR_REASON_NOT_PERMITTED,
                _Reason.ERROR_REASON_TASK_INVALID,
            ):
                return []
            raise
        return [gold_of(one) for one in reply.answers]

    async def play(self, task: rollout_pb2.Task, attack: Attack) -> Played:
        """Play one rollout. If the environment rejects or fails it, the result has the reason."""
        rollout_id = f"audit-{next(self._ids)}"
        if self._scripted is not None:
            self._scripted.play(rollout_id, attack)
        try:
            return await self._rollout(task, attack, rollout_id)
        except MeshError as error:
            shown = f"{error.reason_name}: {error.message}"
            return Played(attack, task.task_id, fault=shown, refused=error.reason in _NO_TRIAL)
        finally:
            if self._scripted is not None:
                self._scripted.forget(rollout_id)

    async def session(self, task: rollout_pb2.Task) -> resource_pb2.CreateSessionResponse:
        """Open a session to see what it offers. The caller closes it. Raises MeshError."""
        request = resource_pb2.CreateSessionRequest(
            task=task, request_id=self._id(), seed=task.seed or 7
        )
        opened: resource_pb2.CreateSessionResponse = await self._resource.CreateSession(
            request, timeout=_CALL_S
        )
        return opened

    async def close(self, session_id: str) -> None:
        """Close a session. A session that no longer exists counts as closed."""
        with contextlib.suppress(MeshError):
            await self._resource.CloseSession(
                resource_pb2.CloseSessionRequest(session_id=session_id), timeout=_CALL_S
            )

    def default_calls(
        self, opened: resource_pb2.CreateSessionResponse, task: rollout_pb2.Task
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """One call of each tool, with arbitrary arguments that the tool's schema allows."""
        calls: list[tuple[str, Mapping[str, Any]]] = []
        for tool in (*opened.tools, *task.params.tools):
            if not tool.HasField("function"):
                continue
            try:
                schema = loads(tool.function.parameters_json or b"{}")
            except CodecError:
                continue
            arguments = self._make_arguments(schema if isinstance(schema, dict) else {})
            if arguments is not None:
                calls.append((tool.function.name, arguments))
        return calls

    async def _rollout(self, task: rollout_pb2.Task, attack: Attack, rollout_id: str) -> Played:
        request = resource_pb2.CreateSessionRequest(
            task=task, request_id=self._id(), rollout_id=rollout_id, seed=task.seed or 7
        )
        opened = await self._resource.CreateSession(request, timeout=_CALL_S)
        try:
            step_rewards: list[float] = []
            made = self._calls(opened.session_id, attack.calls, attack.raw_calls, step_rewards)
            transcript, outputs = await made
            message = "\n".join(outputs) if attack.echo else attack.message
            if message is not None:
                transcript.append(new_message("assistant", message))
            if opened.multi_turn and message is not None:
                step_rewards += await self._turns(opened.session_id, attack, message, transcript)
            return await self._verdict(
                task, attack, rollout_id, opened.session_id, transcript, step_rewards, outputs
            )
        finally:
            await self.close(opened.session_id)

    async def _calls(
        self,
        session_id: str,
        calls: Sequence[MadeCall],
        raw_calls: Sequence[tuple[str, bytes]],
        rewards: list[float],
        before: int = 0,
    ) -> tuple[list[responses_pb2.Item], list[str]]:
        """The items of calls with their outputs, and the outputs' texts; adds the calls' rewards to
        `rewards`. before: how many items precede them.
        """
        written = [(name, dumps(dict(arguments))) for name, arguments in calls]
        transcript: list[responses_pb2.Item] = []
        outputs: list[str] = []
        for number, (name, arguments) in enumerate((*written, *raw_calls), before + 1):
            answer = await self._resource.CallTool(
                resource_pb2.CallToolRequest(
                    session_id=session_id, name=name, arguments=arguments, request_id=self._id()
                ),
                timeout=_CALL_S,
            )
            call_id = f"call_{number}"
            call = responses_pb2.FunctionCall(
                name=name, call_id=call_id, arguments=arguments, status="completed"
            )
            output = responses_pb2.FunctionCallOutput(call_id=call_id, text=answer.text)
            transcript.append(responses_pb2.Item(function_call=call))
            transcript.append(responses_pb2.Item(function_call_output=output))
            outputs.append(answer.text.decode(errors="replace"))
            if answer.HasField("reward"):
                rewards.append(answer.reward)
            if answer.done:
                break
        return transcript, outputs

    async def _turns(
        self, session_id: str, attack: Attack, message: str, transcript: list[responses_pb2.Item]
    ) -> list[float]:
        """Says the same in a few turns, after the calls of each turn; the turns' rewards."""
        rewards: list[float] = []
        new = list(transcript)
        for number in range(max(_TURNS, len(attack.turns) + 1)):
            turn = await self._resource.NextTurn(
                resource_pb2.NextTurnRequest(
                    session_id=session_id, new_items=new, request_id=self._id()
                ),
                timeout=_CALL_S,
            )
            transcript.extend(turn.items)
            if turn.HasField("reward"):
                rewards.append(turn.reward)
            if turn.done:
                break
            calls = attack.turns[number] if number < len(attack.turns) else ()
            made, _ = await self._calls(session_id, calls, (), rewards, len(transcript))
            new = [*made, new_message("assistant", message)]
            transcript.extend(new)
        return rewards

    async def _verdict(
        self,
        task: rollout_pb2.Task,
        attack: Attack,
        rollout_id: str,
        session_id: str,
        transcript: Sequence[responses_pb2.Item],
        step_rewards: Sequence[float],
        outputs: Sequence[str],
    ) -> Played:
        started = time.perf_counter()
        reply = await self._verifier.Verify(
            verify_pb2.VerifyRequest(
                session_id=session_id,
                task=task,
                transcript=transcript,
                stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
                rollout_id=rollout_id,
                turn_rewards=step_rewards,
            ),
            timeout=_CALL_S,
        )
        seconds = time.perf_counter() - started
        verdict = reply.verification
        told = "\n".join(outputs)
        if not verdict.HasField("reward"):
            return Played(attack, task.task_id, seconds=seconds, told=told)
        try:
            reward = rollout_reward(verdict.reward, self.about.reward_rule, step_rewards)
        except ValueError as error:
            return Played(attack, task.task_id, fault=str(error), seconds=seconds, told=told)
        return Played(attack, task.task_id, reward=reward, seconds=seconds, told=told)

    def _id(self) -> str:
        return f"audit-request-{next(self._ids)}"
