"""Spans of attempts, after OpenTelemetry's conventions for GenAI.

See gymmesh_runtime.telemetry.tracing.

    invoke_agent AGENT        the attempt, from its start until its session is closed
      chat MODEL              each model call
      execute_tool TOOL       each tool call
      next_turn ENVIRONMENT   each turn of the environment
      verify ENVIRONMENT      the verdict

Where the process is not traced, each of these functions does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.answer import ModelCall
from gymmesh_agent.loop import Completion
from gymmesh_agent.plan import AttemptId
from gymmesh_agent.telemetry.measures import Tally
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.telemetry.tracing import Attributes, Kind, active, mark_failed

MaybeSpan: TypeAlias = Any
"""The span under way; None where the process is not traced. Its class is OpenTelemetry's, which
gymmesh_runtime.telemetry.tracing alone imports."""


def attempt_span(
    attempt: AttemptId, agent: str, environment: str
) -> AbstractContextManager[MaybeSpan]:
    """The span of an attempt: a trace, or a part of its rollout's."""
    tracing = active()
    if tracing is None:
        return nullcontext()
    attributes: dict[str, str | int] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "gymmesh",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": attempt.rollout_id,
        "gymmesh.rollout.id": attempt.rollout_id,
        "gymmesh.rollout.attempt": attempt.attempt,
        "gymmesh.environment": environment,
    }
    if attempt.run_id:
        attributes["gymmesh.run.id"] = attempt.run_id
    return tracing.rollout(attempt.rollout_id, f"invoke_agent {agent}", attributes)


def model_span(model: str, role: str) -> AbstractContextManager[MaybeSpan]:
    """The span of a model call; see `record_call`."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gymmesh",
        "gen_ai.request.model": model,
        "gymmesh.model.role": role,
    }
    return _span(f"chat {model}", "client", attributes)


def record_call(span: MaybeSpan, call: ModelCall) -> None:
    """Say in the span of a model call what was answered."""
    if span is None:
        return
    span.set_attribute("gymmesh.model_call.id", call.call_id)
    span.set_attribute("gen_ai.response.finish_reasons", [call.status])
    span.set_attribute("gen_ai.usage.input_tokens", call.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", call.output_tokens)
    if call.response.model:
        span.set_attribute("gen_ai.response.model", call.response.model)


def tool_span(name: str, tools: Iterable[responses_pb2.Tool]) -> AbstractContextManager[MaybeSpan]:
    """The span of a tool call. A name that is not among the tools is the model's own text, which
    no span may hold.
    """
    if active() is None:
        return nullcontext()
    operation = "execute_tool"
    attributes = {"gen_ai.operation.name": operation, "gen_ai.tool.type": "function"}
    if any(tool.function.name == name for tool in tools):
        operation = f"execute_tool {name}"
        attributes["gen_ai.tool.name"] = name
    return _span(operation, "client", attributes)


def record_tool(span: MaybeSpan, outcome: rollout_pb2.ToolOutcome.ValueType) -> None:
    """Say in the span of a tool call how it was answered."""
    if span is not None:
        name = _name(rollout_pb2.ToolOutcome, outcome, "TOOL_OUTCOME_")
        span.set_attribute("gymmesh.tool.outcome", name)


def turn_span(environment: str) -> AbstractContextManager[MaybeSpan]:
    """The span of an environment's turn."""
    return _span(f"next_turn {environment}", "internal", {})


def verify_span(environment: str) -> AbstractContextManager[MaybeSpan]:
    """The span of a verdict."""
    return _span(f"verify {environment}", "client", {})


def record_verdict(span: MaybeSpan, verdict: rollout_pb2.Verification) -> None:
    """Say in the span of an attempt how it was judged."""
    if span is not None and verdict.HasField("reward"):
        span.set_attribute("gen_ai.evaluation.score.value", verdict.reward)


def record_end(
    span: MaybeSpan, outcome: Completion | rollout_pb2.Failure | None, tally: Tally | None
) -> None:
    """Say in the span of an attempt how it ended; None: it was stopped."""
    if span is None or outcome is None:
        return
    if isinstance(outcome, Completion):
        reason = _name(rollout_pb2.StopReason, outcome.reason, "STOP_REASON_")
        span.set_attribute("gymmesh.stop_reason", reason)
    else:
        boundary = _name(rollout_pb2.Boundary, outcome.boundary, "BOUNDARY_")
        span.set_attribute("gymmesh.failure.boundary", boundary)
        mark_failed(span, from_status(outcome.status).reason_name)
    if tally is not None:
        span.set_attribute("gen_ai.usage.input_tokens", tally.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", tally.output_tokens)


def _span(name: str, kind: Kind, attributes: Attributes) -> AbstractContextManager[MaybeSpan]:
    tracing = active()
    return nullcontext() if tracing is None else tracing.span(name, kind, attributes)


def _name(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum's value; its number, for one of a later contract."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(prefix)
