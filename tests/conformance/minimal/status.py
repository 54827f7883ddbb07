"""Errors as errors.proto wants them: a google.rpc.Status with one ErrorInfo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import grpc
from google.rpc import error_details_pb2, status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2

_KEY: Final = "grpc-status-details-bin"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
#: Messages of 64 MiB, for servers and channels; the default is 4 MiB.
OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


def make_status(
    code: grpc.StatusCode,
    reason: str,
    message: str,
    usage: Sequence[rollout_pb2.ModelCallUsage] = (),
    /,
    **metadata: str,
) -> status_pb2.Status:
    """A status with its one ErrorInfo, and what models consumed before the error."""
    status = status_pb2.Status(code=code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=reason, domain="gymmesh", metadata=metadata)
    status.details.add().Pack(info)
    if usage:
        status.details.add().Pack(errors_pb2.ModelUsage(usage=usage))
    return status


async def fail(
    context: Any,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    usage: Sequence[rollout_pb2.ModelCallUsage] = (),
    /,
    **metadata: str,
) -> NoReturn:
    """Ends the call with an error."""
    await fail_with(context, make_status(code, reason, message, usage, **metadata))


async def fail_with(context: Any, status: status_pb2.Status) -> NoReturn:
    """Ends the call with this status."""
    trailers = ((_KEY, status.SerializeToString()),)
    await context.abort(_CODES[status.code], status.message, trailing_metadata=trailers)
    raise AssertionError("abort always raises")


async def require(context: Any, request: Any, method: str, *names: str) -> None:
    """Refuses a request that lacks a field marked REQUIRED."""
    for name in names:
        value = getattr(request, name)
        set_ = request.HasField(name) if hasattr(value, "DESCRIPTOR") else bool(value)
        if not set_:
            await fail(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                "REQUIRED_FIELD_MISSING",
                f"{method} needs the field '{name}'",
                field=name,
                method=method,
            )


def status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    """The status of a call that failed; made from its code where none came along."""
    for key, value in error.trailing_metadata() or ():
        if key == _KEY and isinstance(value, bytes):
            return status_pb2.Status.FromString(value)
    reasons = {
        grpc.StatusCode.DEADLINE_EXCEEDED: "DEADLINE_PASSED",
        grpc.StatusCode.UNAVAILABLE: "PEER_UNAVAILABLE",
        grpc.StatusCode.UNIMPLEMENTED: "NOT_OFFERED",
    }
    code = error.code() if error.code() in reasons else grpc.StatusCode.INTERNAL
    return make_status(code, reasons.get(code, "INTERNAL_FAULT"), error.details() or code.name)


def reason_of(status: status_pb2.Status) -> str:
    """The reason in a status, or an empty string."""
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason
    return ""
