"""Converts an error to the rollout's failure. All rules for this are in this module.

    MeshError          the error of a peer's call
      StepFailed       the same, with the step of the rollout where it happened

The step determines the boundary, unless the reason alone determines it. For example, a spent budget
has the same boundary at every step, and an unreachable judge is an unreachable model for every
caller. The options in errors.proto have two facts for every reason: the boundary, and whether a new
attempt in a fresh session may succeed. Once a session may exist, an environment that reports "not
safe to retry" overrides the second fact.

Three endings never come from the table, because only the agent's own clock and its caller know
them: the rollout's deadline (DEADLINE), the operator's wall-clock budget (BUDGET), and a cancelled
stream, which has no terminal event. If a peer exceeds the time limit of one call, the failure is
the peer's, not the rollout's deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import grpc

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import RULES, MeshError, to_status, unforeseen
from gymmesh_runtime.telemetry.stalls import advice, stalls_within
from gymmesh_runtime.text import describe

Reason = errors_pb2.ErrorReason
Boundary = rollout_pb2.Boundary


class FailureStage(Enum):
    """The step of a rollout at which something failed; the value is its name in metadata."""

    CREATE_SESSION = "create_session"
    MODEL = "model"
    TOOL = "call_tool"
    TURN = "next_turn"
    PLAY = "play_episode"
    VERIFY = "verify"
    AGENT = "agent"


class StepFailed(MeshError):
    """A peer's error, with the step at which it happened.

    Attributes:
        stage: the step.
        component: the name of the model service, tool, environment or agent.
        call_id: the model call or function call concerned; empty if there was none.
    """

    def __init__(
        self, error: MeshError, stage: FailureStage, component: str, call_id: str = ""
    ) -> None:
        super().__init__(
            error.reason,
            error.message,
            metadata=error.metadata,
            retry_after_s=error.retry_after_s,
            code=error.code,
            usage=error.usage,
        )
        self.stage = stage
        self.component = component
        self.call_id = call_id


_STAGES: Final[Mapping[FailureStage, rollout_pb2.Boundary.ValueType]] = MappingProxyType(
    {
        FailureStage.CREATE_SESSION: Boundary.BOUNDARY_RESOURCE,
        FailureStage.MODEL: Boundary.BOUNDARY_MODEL,
        FailureStage.TOOL: Boundary.BOUNDARY_TOOL,
        FailureStage.TURN: Boundary.BOUNDARY_RESOURCE,
        FailureStage.PLAY: Boundary.BOUNDARY_RESOURCE,
        FailureStage.VERIFY: Boundary.BOUNDARY_VERIFIER,
        FailureStage.AGENT: Boundary.BOUNDARY_AGENT,
    }
)

#: For reasons of a later contract, the code decides alone.
_CODES_TO_RETRY: Final = frozenset(
    (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
    )
)

#: With these, CreateSession was refused before anything was done.
_REFUSED: Final = frozenset(
    (
        Reason.ERROR_REASON_SESSION_LIMIT,
        Reason.ERROR_REASON_DRAINING,
        Reason.ERROR_REASON_QUEUE_FULL,
        Reason.ERROR_REASON_SERVICE_NOT_FOUND,
    )
)


#: A call whose time ran out during a stall ends this many seconds after it, at most.
_STALL_SEEN_S: Final = 2.0


def failure_of(failed: StepFailed, *, environment_retry_safe: bool) -> rollout_pb2.Failure:
    """The failure of a rollout whose step failed.

    Args:
        failed: the error and its step.
        environment_retry_safe: what GetEnvironment reports; True while it is not known.
    """
    failed = _but_for_a_stall(failed)
    rule = RULES.get(failed.reason)
    boundary = _STAGES[failed.stage]
    if rule is None:
        may_succeed = failed.code in _CODES_TO_RETRY
    else:
        may_succeed, boundary = rule.retry_safe, rule.boundary or boundary
    untouched = failed.stage is FailureStage.CREATE_SESSION and failed.reason in _REFUSED
    return rollout_pb2.Failure(
        boundary=boundary,
        status=to_status(failed),
        retry_safe=may_succeed and (untouched or environment_retry_safe),
        component=failed.component,
        call_id=failed.call_id,
    )


def step_failed(error: Exception, agent: str) -> StepFailed:
    """The error that ended an agent's `run`, with its step. If no peer failed, the step is the
    agent's.

    An exception other than MeshError is a fault of the agent's code (AGENT_FAULT).
    """
    if isinstance(error, StepFailed):
        return error
    if isinstance(error, MeshError):
        return StepFailed(error, FailureStage.AGENT, agent)
    logged = unforeseen(error, f"agent '{agent}'", authors=True)
    about = describe(error)
    place = f" at {about['at']}" if "at" in about else ""
    fault = MeshError(
        Reason.ERROR_REASON_AGENT_FAULT,
        f"agent '{agent}' raised {about['exception']}{place}",
        metadata={"agent": agent, **logged.metadata, **about},
    )
    return StepFailed(fault, FailureStage.AGENT, agent)


def _but_for_a_stall(failed: StepFailed) -> StepFailed:
    """A model's time-out. If the event loop was blocked for most of that time, the fault of what
    blocked it.
    """
    if failed.reason != Reason.ERROR_REASON_MODEL_TIMEOUT:
        return failed
    try:
        timeout_s = float(failed.metadata.get("timeout_s", ""))
    except ValueError:
        return failed
    stalls = stalls_within(timeout_s + _STALL_SEEN_S)
    if not stalls or sum(stall.seconds for stall in stalls) < timeout_s / 2:
        return failed
    worst = stalls[0]
    error = MeshError(
        Reason.ERROR_REASON_ENVIRONMENT_FAULT,
        f"{worst.method} blocked the event loop for {worst.seconds:.1f} s, so a call of model "
        f"'{failed.component}' timed out after {timeout_s:g} s. {advice(worst.place)}",
        metadata={"environment": worst.owner, "stage": failed.stage.value, "at": worst.place},
    )
    return StepFailed(error, failed.stage, worst.owner, failed.call_id)


def deadline_failure(agent: str, *, environment_retry_safe: bool) -> rollout_pb2.Failure:
    """The failure of a rollout whose own deadline passed."""
    error = MeshError(
        Reason.ERROR_REASON_DEADLINE_PASSED,
        "the rollout did not end before its deadline; raise --timeout of gym-cli collect, or the "
        "deadline of the call",
        metadata={"method": "gymmesh.agent.v1.AgentService/RunRollout"},
    )
    return rollout_pb2.Failure(
        boundary=Boundary.BOUNDARY_DEADLINE,
        status=to_status(error),
        retry_safe=environment_retry_safe,
        component=agent,
    )


def budget_failure(limit_s: float) -> rollout_pb2.Failure:
    """The failure of a rollout that spent its wall-clock budget of `limit_s` seconds."""
    error = MeshError(
        Reason.ERROR_REASON_BUDGET_SPENT,
        f"the rollout took longer than max_wall_s allows ({limit_s:g} s); raise max_wall_s",
        metadata={"budget": "max_wall_s", "limit": f"{limit_s:g}"},
    )
    return rollout_pb2.Failure(
        boundary=Boundary.BOUNDARY_BUDGET,
        status=to_status(error),
        retry_safe=False,
        component="max_wall_s",
    )
