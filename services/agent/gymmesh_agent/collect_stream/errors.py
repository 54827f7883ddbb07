"""The errors that a collector gets."""

from __future__ import annotations

from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"
RUN_ROLLOUT: Final = "gymmesh.agent.v1.AgentService/RunRollout"


def invalid_message(reason: Any, field: str, problem: str) -> MeshError:
    """The error of a message that breaks the contract."""
    metadata = {"field": field, "method": METHOD}
    return MeshError(reason, f"the message's field '{field}' {problem}", metadata=metadata)


def no_hello(field: str) -> MeshError:
    """The error of a first message that is not a valid hello."""
    return MeshError(
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
        f"the first message needs the field '{field}'",
        metadata={"field": field, "method": METHOD},
    )


def too_late(what: str) -> MeshError:
    """The error after a time limit passed."""
    return MeshError(errors_pb2.ERROR_REASON_DEADLINE_PASSED, what, metadata={"method": METHOD})


def cancelled(why: str = "the collector cancelled the attempt") -> MeshError:
    """The error of an attempt that the collector cancelled."""
    return MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, why)


def draining(agent: str) -> MeshError:
    """The error while the agent shuts down."""
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, f"agent '{agent}' is shutting down")
