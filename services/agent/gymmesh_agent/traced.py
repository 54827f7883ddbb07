"""Attempts that are traced: what they do as spans, after OpenTelemetry's conventions for GenAI.

    invoke_agent AGENT        the attempt, from its start until its session is closed
      chat MODEL              each model call
      execute_tool TOOL       each tool call
      next_turn ENVIRONMENT   each turn of the environment
      verify ENVIRONMENT      the verdict

Used in place of Attempt where the process is traced; see gymmesh_runtime.tracing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.agent import Completion
from gymmesh_agent.answer import ModelCall
from gymmesh_agent.attempt import Attempt
from gymmesh_agent.scope import Items, RolloutScope, ToolAnswer, TurnAnswer
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.tracing import Tracing, active, mark_failed, no_span


def attempt_class() -> type[Attempt]:
    """What attempts are made of in this process."""
    return Attempt if active() is None else TracedAttempt


def _tracing() -> Tracing:
    found = active()
    assert found is not None  # it was when these were chosen, and is until the services are closed
    return found


class TracedScope(RolloutScope):
    """A scope whose steps are spans."""

    __slots__ = ()

    async def call_model(
        self,
        items: Items = (),
        *,
        role: str = "policy",
        actor: str = "",
        parent: ModelCall | Literal["start"] | None = None,
        detached: bool = False,
        trainable: bool | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> ModelCall:
        """As RolloutScope's."""
        model = self._names.get(role) or role
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gymmesh",
            "gen_ai.request.model": model,
            "gymmesh.model.role": role,
        }
        with _tracing().span(f"chat {model}", "client", attributes) as span:
            call = await super().call_model(
                items,
                role=role,
                actor=actor,
                parent=parent,
                detached=detached,
                trainable=trainable,
                params=params,
            )
            span.set_attribute("gymmesh.model_call.id", call.call_id)
            span.set_attribute("gen_ai.response.finish_reasons", [call.status])
            span.set_attribute("gen_ai.usage.input_tokens", call.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", call.output_tokens)
            if call.response.model:
                span.set_attribute("gen_ai.response.model", call.response.model)
            return call

    async def next_turn(self, call: ModelCall | None = None) -> TurnAnswer:
        """As RolloutScope's."""
        with _tracing().span(f"next_turn {self._session.name}"):
            return await super().next_turn(call)

    async def _call_tool(
        self, call: ModelCall, place: int, function: responses_pb2.FunctionCall
    ) -> list[ToolAnswer]:
        name = "execute_tool"
        attributes = {"gen_ai.operation.name": name, "gen_ai.tool.type": "function"}
        # A name that the model made up is its text.
        if any(tool.function.name == function.name for tool in self.params.tools):
            name = f"execute_tool {function.name}"
            attributes["gen_ai.tool.name"] = function.name
        with _tracing().span(name, "client", attributes) as span:
            answers = await super()._call_tool(call, place, function)
            outcome = _name(rollout_pb2.ToolOutcome, answers[0].outcome, "TOOL_OUTCOME_")
            span.set_attribute("gymmesh.tool.outcome", outcome)
            return answers


class TracedAttempt(Attempt):
    """An attempt that is a trace, or a part of its rollout's."""

    __slots__ = ("_span",)
    scope_class = TracedScope

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # One that is stopped before its first step never has a span.
        self._span = no_span()

    async def _run(self) -> None:
        rollout_id, run_id = self._ref
        agent = self._place.name
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "gymmesh",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": rollout_id,
            "gymmesh.rollout.id": rollout_id,
            "gymmesh.rollout.attempt": self._who.attempt,
            "gymmesh.environment": self._session.name,
        }
        if run_id:
            attributes["gymmesh.run.id"] = run_id
        with _tracing().rollout(rollout_id, f"invoke_agent {agent}", attributes) as self._span:
            await super()._run()

    async def _judge(self, scope: RolloutScope, completion: Completion) -> None:
        with _tracing().span(f"verify {self._session.name}", "client"):
            await super()._judge(scope, completion)

    def _checked(
        self, verdict: rollout_pb2.Verification, turn_rewards: Sequence[float]
    ) -> rollout_pb2.Verification:
        verdict = super()._checked(verdict, turn_rewards)
        if verdict.HasField("reward"):
            self._span.set_attribute("gen_ai.evaluation.score.value", verdict.reward)
        return verdict

    def _complete(self, completion: Completion) -> None:
        reason = _name(rollout_pb2.StopReason, completion.reason, "STOP_REASON_")
        self._span.set_attribute("gymmesh.stop_reason", reason)
        self._count()
        super()._complete(completion)

    def _fail(self, failure: rollout_pb2.Failure) -> None:
        boundary = _name(rollout_pb2.Boundary, failure.boundary, "BOUNDARY_")
        self._span.set_attribute("gymmesh.failure.boundary", boundary)
        mark_failed(self._span, from_status(failure.status).reason_name)
        self._count()
        super()._fail(failure)

    def _count(self) -> None:
        if self._scope is not None:
            tally = self._scope.tally
            self._span.set_attribute("gen_ai.usage.input_tokens", tally.input_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", tally.output_tokens)


def _name(enum: Any, number: int, prefix: str) -> str:
    """A value of an enum of the contract, which an agent or a peer may have of a later one."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(prefix)
