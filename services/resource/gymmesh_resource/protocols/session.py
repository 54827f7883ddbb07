"""A session of an environment, as clients of other protocols work in it.

Invariant: a fault of the environment or of its verifier is raised as the MeshError that it is, and
the session stays failed from then on: such an episode has no reward.
"""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.protocols.content import ShownPart, parts_of_items, parts_of_reply
from gymmesh_resource.serving import OpenSession
from gymmesh_responses import dumps, new_message, rollout_reward
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, copy_of

_RESOURCE: Final = resource_pb2.DESCRIPTOR.services_by_name["ResourceService"].full_name
_VERIFY: Final = verify_pb2.DESCRIPTOR.services_by_name["VerifyService"].full_name
_VERIFIED: Final = rollout_pb2.VERIFICATION_STATUS_VERIFIED
_Reason = errors_pb2.ErrorReason


@dataclass(frozen=True, slots=True)
class ProtocolStep:
    """The result of one action.

    parts: the answer for the policy. outcome: of a tool call; OK for a message. done: whether the
    episode is over. reward: this step's; over all steps of an episode they add up to its reward.
    None: the step has none. verification: the verdict, exactly when `done`.
    """

    parts: Sequence[ShownPart] = ()
    outcome: rollout_pb2.ToolOutcome.ValueType = rollout_pb2.TOOL_OUTCOME_OK
    done: bool = False
    reward: float | None = None
    verification: rollout_pb2.Verification | None = None


class ProtocolSession:
    """One open session, with its messages and calls.

    Attributes:
        id: the session's id, which only its owner knows. task: the task, unchanged.
        items: everything after the first items, as Responses items.
        done: whether the episode is over, with a verdict or a failure.
        total: the episode's reward; None: not judged. verification: the verdict with this reward.
        steps: the number of actions.
    """

    def __init__(
        self,
        resource: Any,
        verifier: Any,
        about: resource_pb2.GetEnvironmentResponse,
        opened: OpenSession[Any],
        *,
        offers_others: bool,
    ) -> None:
        self._resource = resource
        self._verifier = verifier
        self._about = about
        # Weak: the façade keeps this by the open session, as long as the environment has that.
        self._opened = weakref.ref(opened)
        self._answer = opened.answer
        self._offers_others = offers_others
        self._order = asyncio.Lock()
        self._step_rewards: list[float] = []  # of tool calls and turns, as they came
        self._told = 0  # items that the environment's last turn knew of
        self._failure: MeshError | None = None
        self._rollout_id = opened.session.rollout_id
        self.id = opened.session.id
        self.task = opened.session.task.message
        self.items: list[responses_pb2.Item] = []
        self.done = False
        self.total: float | None = None
        self.verification: rollout_pb2.Verification | None = None
        self.steps = 0

    @property
    def multi_turn(self) -> bool:
        """Whether the environment answers messages."""
        return self._about.multi_turn

    @property
    def first_items(self) -> Sequence[responses_pb2.Item]:
        """The environment's messages after the task's input."""
        return self._answer.items

    @property
    def tools(self) -> list[responses_pb2.FunctionTool]:
        """The tools of the environment, of the session, and the task's own that can be called."""
        functions = {tool.function.name: tool.function for tool in self._answer.tools}
        if self._offers_others:
            for tool in self.task.params.tools:
                if tool.function.name:
                    functions.setdefault(tool.function.name, tool.function)
        return list(functions.values())

    def touch(self) -> None:
        """Note that the client is connected, so the session is not idle."""
        opened = self._opened()
        if opened is not None:
            with opened:
                pass

    async def call(
        self, name: str, arguments: bytes, call_id: str
    ) -> resource_pb2.CallToolResponse:
        """Call a tool and keep the call with its answer. Raises MeshError."""
        request = resource_pb2.CallToolRequest(
            session_id=self.id,
            name=name,
            arguments=arguments,
            call_id=call_id,
            request_id=call_id,
        )
        reply: resource_pb2.CallToolResponse = await self._resource.CallTool(
            request, CallContext(f"{_RESOURCE}/CallTool")
        )
        self.items += _call_items(request, reply)
        if reply.HasField("reward"):
            self._step_rewards.append(reply.reward)
        return reply

    async def act(self, name: str, arguments: dict[str, Any], call_id: str = "") -> ProtocolStep:
        """Call a tool as an action of the episode; judges it where the call ends it.

        Raises MeshError, also SESSION_STATE once the episode is over.
        """
        call_id = call_id or f"call_{secrets.token_hex(12)}"
        async with self._order:
            self._refuse_over()
            try:
                reply = await self.call(name, dumps(arguments), call_id)
                self.steps += 1
                parts, reward = parts_of_reply(reply), self._counted(reply)
                if not reply.done:
                    return ProtocolStep(parts, reply.outcome, reward=reward)
                return await self._end(parts, reply.outcome, step=reward)
            except MeshError as error:
                self.fail(error)
                raise

    async def say(self, text: str) -> ProtocolStep:
        """Say something as the policy: the environment's turn, or the answer that is judged.

        Raises MeshError, also SESSION_STATE once the episode is over.
        """
        async with self._order:
            self._refuse_over()
            try:
                self.steps += 1
                self.items.append(new_message("assistant", text))
                return await self._take_turn() if self.multi_turn else await self._end()
            except MeshError as error:
                self.fail(error)
                raise

    async def judge(
        self, items: Sequence[responses_pb2.Item], stop: rollout_pb2.StopReason.ValueType
    ) -> ProtocolStep:
        """End the episode with a transcript of the client's own. Raises MeshError."""
        async with self._order:
            self._refuse_over()
            try:
                self.items = list(items)
                return await self._end(stop=stop)
            except MeshError as error:
                self.fail(error)
                raise

    def fail(self, error: MeshError) -> None:
        """Mark the episode as failed: later actions earn no reward."""
        if not self.done:
            self._failure, self.done = error, True

    async def close(self) -> None:
        """Close the session, and end what runs in it; harmless when called twice."""
        request = resource_pb2.CloseSessionRequest(session_id=self.id)
        await self._resource.CloseSession(request, CallContext(f"{_RESOURCE}/CloseSession"))

    async def _take_turn(self) -> ProtocolStep:
        request = resource_pb2.NextTurnRequest(
            session_id=self.id,
            new_items=self.items[self._told :],
            request_id=f"turn_{secrets.token_hex(12)}",
        )
        turn: resource_pb2.NextTurnResponse = await self._resource.NextTurn(
            request, CallContext(f"{_RESOURCE}/NextTurn")
        )
        self.items += turn.items
        self._told = len(self.items)
        if turn.HasField("reward"):
            self._step_rewards.append(turn.reward)
        parts, reward = parts_of_items(turn.items), self._counted(turn)
        if turn.done:
            return await self._end(parts, step=reward)
        return ProtocolStep(parts, reward=reward)

    def _counted(
        self, reply: resource_pb2.CallToolResponse | resource_pb2.NextTurnResponse
    ) -> float | None:
        """A step's own reward, where it adds to the episode's."""
        if not reply.HasField("reward") or self._about.reward_rule != resource_pb2.REWARD_RULE_SUM:
            return None
        return reply.reward

    async def _end(
        self,
        parts: Sequence[ShownPart] = (),
        outcome: rollout_pb2.ToolOutcome.ValueType = rollout_pb2.TOOL_OUTCOME_OK,
        *,
        step: float | None = None,
        stop: rollout_pb2.StopReason.ValueType = rollout_pb2.STOP_REASON_MODEL_FINISHED,
    ) -> ProtocolStep:
        """The verdict. `step`: the reward of the tool call or turn that ended the episode."""
        request = verify_pb2.VerifyRequest(
            session_id=self.id,
            task=self.task,
            transcript=self.items,
            stop_reason=stop,
            rollout_id=self._rollout_id,
            turn_rewards=self._step_rewards,
        )
        reply: verify_pb2.VerifyResponse = await self._verifier.Verify(
            request, CallContext(f"{_VERIFY}/Verify")
        )
        own = reward_of(reply.verification, self._about.name)
        try:
            total = rollout_reward(own, self._about.reward_rule, self._step_rewards)
        except ValueError as error:
            raise _no_reward(self._about.name, str(error)) from error
        self.done, self.total, self.verification = True, total, reply.verification
        return ProtocolStep(parts, outcome, True, own + (step or 0.0), reply.verification)

    def _refuse_over(self) -> None:
        if self._failure is not None:
            raise copy_of(self._failure)
        if self.done:
            raise MeshError(
                _Reason.ERROR_REASON_SESSION_STATE,
                "The episode is over. Start a new episode.",
                metadata={"session_id": self.id, "state": "done"},
            )


def reward_of(verdict: rollout_pb2.Verification, environment: str) -> float:
    """The reward of a verdict. Raises VERIFIER_FAULT for a verdict without a reward: a rollout that
    is not judged does not have a reward of 0.
    """
    if verdict.status == _VERIFIED:
        return verdict.reward
    status = rollout_pb2.VerificationStatus.Name(verdict.status)
    words = status.removeprefix("VERIFICATION_STATUS_")
    because = f" ({verdict.reason})" if verdict.reason else ""
    raise _no_reward(environment, f"the verification is {words}{because}")


def _no_reward(environment: str, why: str) -> MeshError:
    return MeshError(
        _Reason.ERROR_REASON_VERIFIER_FAULT,
        f"The environment {environment!r} returned no reward: {why}.",
        metadata={"verifier": environment, "stage": "verify"},
    )


def words_of(error: MeshError) -> str:
    """The message of an error for clients. The words of a fault are for the environment's author:
    the log has them.
    """
    if "error_id" not in error.metadata:
        return error.message
    kind = error.metadata.get("exception", "").partition(":")[0]
    return (
        f"the environment failed ({kind}). The log of the environment has the details under "
        f"error_id {error.metadata['error_id']}"
    )


def _call_items(
    request: resource_pb2.CallToolRequest, reply: resource_pb2.CallToolResponse
) -> list[responses_pb2.Item]:
    """A call and its answer, for the verdict."""
    call = responses_pb2.FunctionCall(
        call_id=request.call_id, name=request.name, arguments=request.arguments
    )
    output = responses_pb2.FunctionCallOutput(call_id=request.call_id)
    if reply.WhichOneof("output") == "parts":
        output.parts.CopyFrom(reply.parts)
    else:
        output.text = reply.text
    return [
        responses_pb2.Item(function_call=call),
        responses_pb2.Item(function_call_output=output),
    ]
