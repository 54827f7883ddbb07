from __future__ import annotations

import grpc
import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.failures import (
    FailureStage,
    StepFailed,
    budget_failure,
    deadline_failure,
    failure_of,
)
from gymmesh_runtime.errors import MeshError, from_status

Reason = errors_pb2.ErrorReason
Boundary = rollout_pb2.Boundary


def fail(
    reason: Reason.ValueType, stage: FailureStage, *, environment_retry_safe: bool = True
) -> rollout_pb2.Failure:
    error = StepFailed(MeshError(reason, "why", metadata={"k": "v"}), stage, "part", "id")
    return failure_of(error, environment_retry_safe=environment_retry_safe)


@pytest.mark.parametrize("stage", list(FailureStage))
@pytest.mark.parametrize("reason", [value for value in Reason.values() if value])
def test_every_failure_is_whole(reason: Reason.ValueType, stage: FailureStage) -> None:
    failure = fail(reason, stage)
    assert failure.boundary
    assert failure.boundary not in (Boundary.BOUNDARY_DEADLINE, Boundary.BOUNDARY_CANCELLED)
    assert (failure.component, failure.call_id) == ("part", "id")
    error = from_status(failure.status)
    assert (error.reason, error.message, error.metadata) == (reason, "why", {"k": "v"})


@pytest.mark.parametrize(
    ("reason", "stage", "boundary", "retry"),
    [
        ("PEER_UNAVAILABLE", FailureStage.CREATE_SESSION, "RESOURCE", True),
        ("PEER_UNAVAILABLE", FailureStage.MODEL, "MODEL", True),
        ("PEER_UNAVAILABLE", FailureStage.TOOL, "TOOL", True),
        ("PEER_UNAVAILABLE", FailureStage.VERIFY, "VERIFIER", True),
        ("DEADLINE_PASSED", FailureStage.MODEL, "MODEL", True),
        ("DEADLINE_PASSED", FailureStage.TURN, "RESOURCE", True),
        ("TOOL_TIMEOUT", FailureStage.TOOL, "TOOL", True),
        ("SESSION_NOT_FOUND", FailureStage.TOOL, "RESOURCE", True),
        ("TASK_INVALID", FailureStage.CREATE_SESSION, "RESOURCE", False),
        ("MODEL_UNREACHABLE", FailureStage.VERIFY, "MODEL", True),
        ("MODEL_QUOTA_SPENT", FailureStage.MODEL, "MODEL", False),
        ("CONTRACT_VIOLATED", FailureStage.VERIFY, "VERIFIER", False),
        ("AGENT_FAULT", FailureStage.AGENT, "AGENT", True),
        ("BUDGET_SPENT", FailureStage.TOOL, "BUDGET", False),
    ],
)
def test_table(reason: str, stage: FailureStage, boundary: str, retry: bool) -> None:
    failure = fail(Reason.Value(f"ERROR_REASON_{reason}"), stage)
    assert failure.boundary == Boundary.Value(f"BOUNDARY_{boundary}")
    assert failure.retry_safe is retry


def test_environment_that_is_not_safe_to_retry_has_the_last_word() -> None:
    fault = Reason.ERROR_REASON_ENVIRONMENT_FAULT
    assert not fail(fault, FailureStage.TOOL, environment_retry_safe=False).retry_safe
    # Refused before anything was done there.
    limit = Reason.ERROR_REASON_SESSION_LIMIT
    assert fail(limit, FailureStage.CREATE_SESSION, environment_retry_safe=False).retry_safe
    assert not deadline_failure("a", environment_retry_safe=False).retry_safe


@pytest.mark.parametrize(
    ("code", "retry"),
    [(grpc.StatusCode.UNAVAILABLE, True), (grpc.StatusCode.INVALID_ARGUMENT, False)],
)
def test_reason_of_a_later_contract_goes_by_its_code(code: grpc.StatusCode, retry: bool) -> None:
    later: Reason.ValueType = 9999  # type: ignore[assignment]  # no value of today's enum
    error = StepFailed(MeshError(later, "?", code=code), FailureStage.TOOL, "x")
    failure = failure_of(error, environment_retry_safe=True)
    assert (failure.boundary, failure.retry_safe) == (Boundary.BOUNDARY_TOOL, retry)


def test_budget_and_deadline_are_told_apart() -> None:
    budget, deadline = budget_failure(3.0), deadline_failure("a", environment_retry_safe=True)
    assert budget.boundary == Boundary.BOUNDARY_BUDGET
    assert from_status(budget.status).metadata == {"budget": "max_wall_s", "limit": "3"}
    assert deadline.boundary == Boundary.BOUNDARY_DEADLINE
    passed = from_status(deadline.status)
    assert passed.reason == Reason.ERROR_REASON_DEADLINE_PASSED
    assert "raise --timeout of gym-cli collect" in passed.message
