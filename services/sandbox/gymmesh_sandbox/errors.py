"""The errors of the sandbox service, each with the metadata that errors.proto lists for it."""

from __future__ import annotations

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError


def sandbox_not_found(
    sandbox_id: str, instance_id: str, cause: str = "", why: str = ""
) -> MeshError:
    """SANDBOX_NOT_FOUND; `cause`: one word, if the cause is known; `why`: the cause in a clause."""
    ended = (
        f"The sandbox has ended: {why}." if why else "This instance has no sandbox with this id."
    )
    metadata = {"sandbox_id": sandbox_id, "instance_id": instance_id}
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND,
        f"{ended} Create a new sandbox.",
        metadata=metadata | ({"cause": cause} if cause else {}),
    )


def lease_invalid(sandbox_id: str, problem: str) -> MeshError:
    """SANDBOX_LEASE_INVALID; `problem` ends the sentence "The lease …"."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_LEASE_INVALID,
        f"The lease {problem}.",
        metadata={"sandbox_id": sandbox_id},
    )


def lease_expired(sandbox_id: str) -> MeshError:
    """SANDBOX_LEASE_EXPIRED."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_LEASE_EXPIRED,
        "The lease was not renewed in time. Ask the owner of the sandbox for a new lease.",
        metadata={"sandbox_id": sandbox_id},
    )


def sandbox_lost(sandbox_id: str, cause: str, why: str = "") -> MeshError:
    """SANDBOX_LOST, for calls that run while the sandbox ends; `why`: the cause in a longer
    clause.
    """
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_LOST,
        f"The sandbox was lost during the call: {why or cause}.",
        metadata={"sandbox_id": sandbox_id, "cause": cause},
    )


def sandbox_out_of_memory(sandbox_id: str, limit_bytes: int) -> MeshError:
    """SANDBOX_OUT_OF_MEMORY, for calls that run while the whole sandbox ends."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_OUT_OF_MEMORY,
        f"The sandbox reached its memory limit of {limit_bytes} bytes, so the service ended the "
        "sandbox.",
        metadata={"sandbox_id": sandbox_id, "limit_bytes": str(limit_bytes)},
    )


def sandbox_limit(message: str, limit: int, retry_after_s: float | None = None) -> MeshError:
    """SANDBOX_LIMIT."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_LIMIT,
        message,
        metadata={"limit": str(limit)},
        retry_after_s=retry_after_s,
    )


def start_timeout(seconds: float) -> MeshError:
    """SANDBOX_START_TIMEOUT."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_START_TIMEOUT,
        f"The sandbox was not ready within {seconds:g} s.",
        metadata={"timeout_s": f"{seconds:g}"},
    )


def image_not_found(image: str, cause: str) -> MeshError:
    """SANDBOX_IMAGE_NOT_FOUND."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        f"There is no image {image!r}: {cause}.",
        metadata={"image": image},
    )


def image_failed(image: str, cause: str) -> MeshError:
    """SANDBOX_IMAGE_FAILED."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED,
        f"No sandbox can be started from the image {image!r}: {cause}.",
        metadata={"image": image, "cause": cause},
    )


def option_unsupported(option: str, backend: str) -> MeshError:
    """SANDBOX_OPTION_UNSUPPORTED; `option` is the path of a field, or the name of a call."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_OPTION_UNSUPPORTED,
        f"The backend '{backend}' does not support {option}.",
        metadata={"option": option, "backend": backend},
    )


def path_invalid(path: bytes, problem: str) -> MeshError:
    """SANDBOX_PATH_INVALID; `problem` ends the sentence "The path …"."""
    shown = path.decode("utf-8", "replace")
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_PATH_INVALID,
        f"The path {shown!r} {problem}.",
        metadata={"path": shown},
    )


def file_denied(path: bytes, user: str) -> MeshError:
    """SANDBOX_FILE_DENIED."""
    shown = path.decode("utf-8", "replace")
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_FILE_DENIED,
        f"The user {user!r} lacks the permission for {shown!r}. Set another user, such as 'root'.",
        metadata={"path": shown, "user": user},
    )


def archive_too_large(limit: str, most: int) -> MeshError:
    """FIELD_INVALID for a folder that is too large to be read as an archive."""
    return MeshError(
        errors_pb2.ERROR_REASON_FIELD_INVALID,
        f"The archive would exceed {limit} ({most}). Read a smaller folder.",
        metadata={"field": "path", "limit": limit, "limit_bytes": str(most)},
    )


def process_not_found(process_id: str) -> MeshError:
    """SANDBOX_PROCESS_NOT_FOUND."""
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_PROCESS_NOT_FOUND,
        "The sandbox has no process with this id: the process never existed, or the process's "
        "result is no longer stored.",
        metadata={"process_id": process_id},
    )


def draining(name: str) -> MeshError:
    """DRAINING."""
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        f"The sandbox service '{name}' is shutting down and starts no new sandboxes.",
    )
