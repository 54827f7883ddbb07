"""What a collector hears when it does not get what it asked for."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import MeshError

METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"
_RETRY_S: Final = 1.0
_RUN_ROLLOUT: Final = methods_of("gymmesh.agent.v1.AgentService")["RunRollout"]


def problem_with(reason: Any, field: str, problem: str) -> MeshError:
    """A message is not as it must be."""
    metadata = {"field": field, "method": METHOD}
    return MeshError(reason, f"the message's field '{field}' {problem}", metadata=metadata)


def missing(field: str) -> MeshError:
    """A start lacks a field of its request."""
    return MeshError(
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
        f"{_RUN_ROLLOUT.full_name} needs the field '{field}'; set it and call again",
        metadata={"field": field, "method": _RUN_ROLLOUT.full_name},
    )


def queue_full(waiting: int) -> MeshError:
    """No more starts can wait."""
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"{waiting} starts of this collector wait already",
        metadata={"queue": "collect", "limit": str(waiting)},
        retry_after_s=_RETRY_S,
    )


def late() -> MeshError:
    """A start waited too long."""
    return MeshError(
        errors_pb2.ERROR_REASON_DEADLINE_PASSED,
        "the time of the rollout was over before its turn came",
        metadata={"method": METHOD},
    )


def taken_over() -> MeshError:
    """The stream has a newer connection."""
    return MeshError(
        errors_pb2.ERROR_REASON_CALLER_CANCELLED,
        "another connection has taken this stream over",
    )


def cancelled() -> MeshError:
    """The collector wanted it no more."""
    return MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the collector cancelled it")


def draining(name: str) -> MeshError:
    """The agent ends."""
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, f"agent '{name}' is shutting down")
