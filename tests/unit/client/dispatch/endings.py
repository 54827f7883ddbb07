"""Dispatchers, and the ways in which their attempts end."""

from __future__ import annotations

from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.dispatch import (
    Assignment,
    Dispatcher,
    DispatchOptions,
    Ended,
)
from tests.unit.client.dispatch.test_parts import Rollout

Reason = errors_pb2.ErrorReason


TIMEOUT = Ended(
    reason=Reason.ERROR_REASON_MODEL_TIMEOUT,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=True,
    begun=True,
)
AWAY = Ended(
    reason=Reason.ERROR_REASON_PEER_UNAVAILABLE,
    boundary=rollout_pb2.BOUNDARY_AGENT,
    retry_safe=True,
    begun=False,
)
MODEL_AWAY = Ended(
    reason=Reason.ERROR_REASON_MODEL_UNREACHABLE,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=True,
    begun=True,
    component="policy",
    message="the endpoint of model 'policy' cannot be reached",
    metadata={"model": "policy"},
)
REFUSED = Ended(
    reason=Reason.ERROR_REASON_MODEL_CREDENTIAL_REFUSED,
    boundary=rollout_pb2.BOUNDARY_MODEL,
    retry_safe=False,
    begun=True,
    message="the endpoint refused the credential (HTTP 401)",
)
FAULT = Ended(
    reason=Reason.ERROR_REASON_VERIFIER_FAULT,
    boundary=rollout_pb2.BOUNDARY_VERIFIER,
    retry_safe=True,
    begun=True,
    metadata={"exception": "KeyError", "at": "judge.py:17"},
)
NO_ROOM = Ended(
    reason=Reason.ERROR_REASON_SESSION_LIMIT,
    boundary=rollout_pb2.BOUNDARY_RESOURCE,
    retry_safe=True,
    begun=True,
)
INVALID = Ended(
    reason=Reason.ERROR_REASON_TASK_INVALID,
    boundary=rollout_pb2.BOUNDARY_RESOURCE,
    retry_safe=False,
    begun=True,
)

ENDINGS = [None, TIMEOUT, AWAY, NO_ROOM, INVALID, MODEL_AWAY, FAULT]


def dispatcher(count: int, **options: Any) -> Dispatcher[Rollout]:
    """Of `count` rollouts, each of a group of its own."""
    work = iter([(Rollout(str(number)), 1) for number in range(count)])
    return Dispatcher(work, DispatchOptions(**options))


def started(one: Dispatcher[Rollout], now: float) -> Assignment[Rollout]:
    """The next attempt, which there must be."""
    found = one.next(now)
    assert found is not None
    return found
