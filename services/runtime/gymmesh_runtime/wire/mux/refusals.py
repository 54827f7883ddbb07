"""The errors of calls that a side of the mux does not take."""

from __future__ import annotations

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import errors
from gymmesh_runtime.errors import MeshError


def draining() -> MeshError:
    """The error of a call to a peer that takes no new ones."""
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "the server is draining and takes no new calls; call another instance",
    )


def queue_full(limit: int) -> MeshError:
    """The error of a call beyond the number that may be in flight."""
    return errors.queue_full(
        f"{limit} calls are in flight on this connection already; try again later", "mux", limit
    )


def assembly_full(where: str, limit: int) -> MeshError:
    """The error of a message in chunks for which there is no memory."""
    return errors.queue_full(
        f"too many large messages are incomplete on {where}; try again later", "mux", limit
    )


def not_offered(method: str) -> MeshError:
    """The error of a call of a method that is not served over the mux."""
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        f"this server does not offer {method} over the mux",
        metadata={"method": method},
    )


def cancelled() -> MeshError:
    """The error of a call that its caller gave up."""
    return MeshError(
        errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the call was cancelled before its end"
    )
