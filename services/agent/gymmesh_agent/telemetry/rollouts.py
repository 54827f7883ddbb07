"""Metrics and traces of an agent's attempts.

Metrics report how attempts ended and the time by stage. Spans follow OpenTelemetry's conventions
for GenAI (see gymmesh_runtime.telemetry.tracing):

    invoke_agent AGENT        the attempt, from its start until its session is closed
      chat MODEL              each model call
      execute_tool TOOL       each tool call
      next_turn ENVIRONMENT   each turn of the environment
      verify ENVIRONMENT      the verdict

If the process is not traced, the functions for spans do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, Final, TypeAlias

from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.loop import Completion
from gymmesh_agent.model import ModelCall
from gymmesh_agent.plan import AttemptId
from gymmesh_agent.tally import AttemptTally
from gymmesh_agent.telemetry import metrics
from gymmesh_runtime.errors import from_status
from gymmesh_runtime.telemetry.tracing import Attributes, active, mark_failed


class _Lengths:
    """The lengths of an agent's completed rollouts in one environment."""

    def __init__(self, agent: str, environment: str) -> None:
        self.model_calls = metrics.ROLLOUT_MODEL_CALLS.labels(agent, environment)
        self.tool_calls = metrics.ROLLOUT_TOOL_CALLS.labels(agent, environment)
        self.output_tokens = metrics.ROLLOUT_OUTPUT_TOKENS.labels(agent, environment)
        self.weights_lag = metrics.ROLLOUT_WEIGHTS_LAG.labels(agent, environment)


class _InEnvironment:
    """The ends of an agent's attempts in one environment."""

    def __init__(self, agent: str, environment: str) -> None:
        self.endings = cache(partial(metrics.ROLLOUTS.labels, agent, environment))
        self.failures = cache(partial(metrics.ROLLOUT_FAILURES.labels, agent, environment))
        self.stages = cache(partial(metrics.ROLLOUT_STAGE_SECONDS.labels, agent, environment))
        self.seconds = metrics.ROLLOUT_SECONDS.labels(agent, environment)


class RolloutMetrics:
    """The metrics of one agent's attempts.

    The environment's name is empty for attempts that reached no environment: labels have no
    invented values.
    """

    def __init__(self, agent: str) -> None:
        #: The gauge of attempts that run.
        self.in_flight = metrics.ROLLOUTS_IN_FLIGHT.labels(agent)
        self._in = cache(partial(_InEnvironment, agent))
        self._lengths = cache(partial(_Lengths, agent))

    def ended(
        self,
        environment: str,
        rollout_id: str,
        outcome: str,
        boundary: str,
        seconds: float,
        stages: Mapping[str, float],
    ) -> None:
        """An attempt ended with this outcome, after this many seconds in all and in each stage."""
        measured = self._in(environment)
        measured.endings(outcome, boundary).inc(1.0, rollout_id)
        measured.seconds.observe(seconds, rollout_id)
        for stage, spent in stages.items():
            if spent > 0.0:
                measured.stages(stage).observe(spent, rollout_id)

    def completed(
        self, environment: str, rollout_id: str, tally: AttemptTally, weights_lag: int | None
    ) -> None:
        """A completed rollout had these lengths; weights_lag: in versions, None: unknown."""
        lengths = self._lengths(environment)
        lengths.model_calls.observe(tally.model_calls)
        lengths.tool_calls.observe(tally.tool_calls)
        lengths.output_tokens.observe(tally.output_tokens, rollout_id)
        if weights_lag is not None:
            lengths.weights_lag.observe(weights_lag, rollout_id)

    def failed(self, environment: str, rollout_id: str, boundary: str, reason: str) -> None:
        """An attempt failed at this boundary, with this reason of errors.proto."""
        self._in(environment).failures(boundary, reason).inc(1.0, rollout_id)

    def closed(self, environment: str, rollout_id: str, seconds: float) -> None:
        """Closing an attempt's session took this many seconds, after the attempt's end."""
        self._in(environment).stages("close_session").observe(seconds, rollout_id)


MaybeSpan: TypeAlias = Any
"""The current span; None if the process is not traced. Its class is OpenTelemetry's, which only
gymmesh_runtime.telemetry.tracing imports.
"""

_NO_SPAN: Final = nullcontext()  # of a process that is not traced


def attempt_span(
    attempt: AttemptId, agent: str, environment: str
) -> AbstractContextManager[MaybeSpan]:
    """The span of an attempt: a trace, or a part of its rollout's."""
    tracing = active()
    if tracing is None:
        return _NO_SPAN
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
    tracing = active()
    if tracing is None:
        return _NO_SPAN
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gymmesh",
        "gen_ai.request.model": model,
        "gymmesh.model.role": role,
    }
    return tracing.span(f"chat {model}", "client", attributes)


def record_call(span: MaybeSpan, call: ModelCall) -> None:
    """Record the answer in the span of a model call."""
    if span is None:
        return
    span.set_attribute("gymmesh.model_call.id", call.call_id)
    span.set_attribute("gen_ai.response.finish_reasons", [call.status])
    span.set_attribute("gen_ai.usage.input_tokens", call.input_tokens)
    span.set_attribute("gen_ai.usage.output_tokens", call.output_tokens)
    if call.response.model:
        span.set_attribute("gen_ai.response.model", call.response.model)


def tool_span(name: str, params: responses_pb2.ResponseParams) -> AbstractContextManager[MaybeSpan]:
    """The span of a tool call. If the name is not among the tools of `params`, the model
    invented it, and the span must not contain it.
    """
    tracing = active()
    if tracing is None:
        return _NO_SPAN
    operation = "execute_tool"
    attributes = {"gen_ai.operation.name": operation, "gen_ai.tool.type": "function"}
    if any(tool.function.name == name for tool in params.tools):
        operation = f"execute_tool {name}"
        attributes["gen_ai.tool.name"] = name
    return tracing.span(operation, "client", attributes)


def record_tool(span: MaybeSpan, outcome: rollout_pb2.ToolOutcome.ValueType) -> None:
    """Record the answer in the span of a tool call."""
    if span is not None:
        name = _name(rollout_pb2.ToolOutcome, outcome, "TOOL_OUTCOME_")
        span.set_attribute("gymmesh.tool.outcome", name)


def turn_span(environment: str) -> AbstractContextManager[MaybeSpan]:
    """The span of an environment's turn."""
    tracing = active()
    return _NO_SPAN if tracing is None else tracing.span(f"next_turn {environment}", "internal", {})


def verify_span(environment: str) -> AbstractContextManager[MaybeSpan]:
    """The span of a verdict."""
    tracing = active()
    return _NO_SPAN if tracing is None else tracing.span(f"verify {environment}", "client", {})


def record_verdict(span: MaybeSpan, verdict: rollout_pb2.Verification) -> None:
    """Record the verdict in the span of an attempt."""
    if span is not None and verdict.HasField("reward"):
        span.set_attribute("gen_ai.evaluation.score.value", verdict.reward)


def record_end(
    span: MaybeSpan, outcome: Completion | rollout_pb2.Failure | None, tally: AttemptTally | None
) -> None:
    """Record in the span of an attempt how it ended; None: it was stopped."""
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


def us_since(began_ns: int) -> int:
    """Whole microseconds since a reading of time.monotonic_ns()."""
    return (time.monotonic_ns() - began_ns) // 1000


def _name(enum: Any, number: int, prefix: str) -> str:
    """The name of an enum's value; its number for a value of a later contract."""
    try:
        name: str = enum.Name(number)
    except ValueError:
        return str(number)
    return name.removeprefix(prefix)
