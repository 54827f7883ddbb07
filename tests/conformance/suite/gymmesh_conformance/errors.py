"""A failed call as the suites see it: a status code and, where it came along, the whole status.

Nothing is interpreted here, so that `laws.error_problems` can judge what the server really sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2

DOMAIN: Final = "gymmesh"
STATUS_KEY: Final = "grpc-status-details-bin"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class CallError(Exception):
    """A call failed. `status` is None when no google.rpc.Status came along."""

    def __init__(
        self, code: grpc.StatusCode, message: str, status: status_pb2.Status | None = None
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @property
    def infos(self) -> list[error_details_pb2.ErrorInfo]:
        """Every ErrorInfo of the status, in order."""
        return error_infos(self.status)

    @property
    def reason(self) -> str:
        """The first ErrorInfo's reason, or an empty string."""
        return next((info.reason for info in self.infos), "")

    @property
    def metadata(self) -> dict[str, str]:
        """The first ErrorInfo's metadata."""
        return next((dict(info.metadata) for info in self.infos), {})


def error_infos(status: status_pb2.Status | None) -> list[error_details_pb2.ErrorInfo]:
    """Every ErrorInfo in the details of a status."""
    found = []
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            found.append(info)
    return found


def usage_of(status: status_pb2.Status | None) -> list[rollout_pb2.ModelCallUsage]:
    """What models consumed before an error, as its details say."""
    found: list[rollout_pb2.ModelCallUsage] = []
    for detail in status.details if status is not None else ():
        usage = errors_pb2.ModelUsage()
        if detail.Unpack(usage):
            found += usage.usage
    return found


def make_error(
    reason: errors_pb2.ErrorReason.ValueType | str,
    code: grpc.StatusCode,
    message: str,
    /,
    usage: Iterable[Message] = (),
    **metadata: str,
) -> CallError:
    """Builds an error with one ErrorInfo, as a conforming server sends it.

    `usage`: what models consumed before it, as ModelCallUsage.
    """
    if not isinstance(reason, str):
        reason = errors_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")
    status = status_pb2.Status(code=code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if usage:
        status.details.add().Pack(errors_pb2.ModelUsage(usage=usage))  # type: ignore[arg-type]
    return CallError(code, message, status)


def from_rpc_error(error: grpc.aio.AioRpcError) -> CallError:
    """Takes over what gRPC raised, the status in its trailers included."""
    status = None
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                status = None
    return CallError(error.code(), error.details() or "", status)


def from_status(status: status_pb2.Status) -> CallError:
    """Takes over a status as it stands in a message."""
    return CallError(_CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, status)
