"""MeshError, the one typed error of the mesh, and its only conversion to the wire and back.

On the wire an error is a ``google.rpc.Status`` with exactly one ``google.rpc.ErrorInfo`` (domain
``gymmesh``). It also has a ``RetryInfo`` if the time after which a retry may succeed is known, and
a ``ModelUsage`` if models were called before the error. Clients decide by code and reason, never by
the message.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.text import place_of, shown_traceback, traceback_id
from gymmesh_runtime.timers import MAX_TIMEOUT_S

DOMAIN: Final = "gymmesh"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
_PREFIX: Final = "ERROR_REASON_"
# An error travels in HTTP/2 trailers, of which many peers and proxies take 8 KiB in all.
_MAX_MESSAGE: Final = 2000
_MAX_METADATA_VALUE: Final = 500
_LONGEST_RETRY_S: Final = 86_400.0
_QUEUE_RETRY_S: Final = 1.0
_MAX_USAGE_BYTES: Final = 2000

_log = logging.getLogger("gymmesh.errors")

Reason = errors_pb2.ErrorReason
_C = grpc.StatusCode

_CODE_BY_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}

#: What each reason means, as the options of its enum value in errors.proto state it.
RULES: Final[Mapping[int, errors_pb2.ReasonRule]] = {
    value.number: value.GetOptions().Extensions[errors_pb2.rule]
    for value in Reason.DESCRIPTOR.values
    if value.number
}

# The descriptor's own look-up fails on names with surrogates, which rows may hold.
_REASON_BY_NAME: Final = {
    value.name.removeprefix(_PREFIX): Reason.ValueType(value.number)
    for value in Reason.DESCRIPTOR.values
    if value.number
}

#: The status code that each reason comes with.
CODE_OF_REASON: Final[Mapping[int, grpc.StatusCode]] = {
    reason: _CODE_BY_NUMBER[rule.code] for reason, rule in RULES.items()
}

#: What a bare status code means when a peer sent no ErrorInfo: a proxy, the
#: gRPC library itself, or a server that does not follow the contract.
_REASON_OF_BARE_CODE: Final[Mapping[grpc.StatusCode, Reason.ValueType]] = {
    # Not cancelled by us (that raises CancelledError), so the server shed it.
    _C.CANCELLED: Reason.ERROR_REASON_PEER_UNAVAILABLE,
    _C.UNAVAILABLE: Reason.ERROR_REASON_PEER_UNAVAILABLE,
    _C.DEADLINE_EXCEEDED: Reason.ERROR_REASON_DEADLINE_PASSED,
    _C.UNIMPLEMENTED: Reason.ERROR_REASON_NOT_OFFERED,
    _C.RESOURCE_EXHAUSTED: Reason.ERROR_REASON_QUEUE_FULL,
    _C.UNAUTHENTICATED: Reason.ERROR_REASON_CREDENTIAL_INVALID,
    _C.PERMISSION_DENIED: Reason.ERROR_REASON_NOT_PERMITTED,
    _C.INVALID_ARGUMENT: Reason.ERROR_REASON_FIELD_INVALID,
}

#: How gRPC libraries say that a message is too large; with the same code they say that a peer
#: asks for fewer streams, or that headers are too large.
_OF_SIZE: Final = re.compile(
    r"message.*\b(larger than|exceed\w*|too (large|big|long)|max\w* size)",
    re.IGNORECASE | re.DOTALL,
)

#: How gRPC's C core says that it could not connect. The cause is at the end.
_NOT_CONNECTED: Final = re.compile(
    r"failed to connect to all addresses; last error: [A-Z_]+: "
    r"(?:ipv[46]:(?P<at>\S+): )?(?:Failed to connect to remote host: )?(?P<cause>.+)",
    re.DOTALL,
)

#: The same for a host name without an address.
_NOT_RESOLVED: Final = re.compile(r"errors resolving .*: (?P<cause>[^:\]]+)\]", re.DOTALL)

#: The sizes, as gRPC's C core (Python, C++, Ruby) and Go give them.
_SIZES: Final = re.compile(r"\((?P<size>\d+) vs\. (?P<limit>\d+)\)")


class MeshError(Exception):
    """A failure of a call, typed by a reason of ``gymmesh.errors.v1``.

    ``message`` is one sentence for people, without secrets. ``metadata`` has the keys that
    errors.proto lists for the reason. ``retry_after_s`` is the time after which a retry may
    succeed, if the failing side sent it. ``usage`` has an entry for each model: what it consumed
    before the error.
    """

    def __init__(
        self,
        reason: Reason.ValueType,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
        code: grpc.StatusCode | None = None,
        usage: Iterable[rollout_pb2.ModelCallUsage] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.retry_after_s = retry_after_s
        self.usage = tuple(usage)
        #: Differs from the reason's own code only in errors of foreign servers.
        self.code: grpc.StatusCode = code or CODE_OF_REASON.get(reason, grpc.StatusCode.UNKNOWN)

    @property
    def reason_name(self) -> str:
        """The reason as in ``ErrorInfo.reason``, such as ``MODEL_TIMEOUT``."""
        return reason_name(self.reason)

    def __str__(self) -> str:
        return f"{self.reason_name}: {self.message}"


def reason_name(reason: int) -> str:
    """Returns the wire name of a reason; ``UNKNOWN_<n>`` for one of a later contract."""
    value = Reason.DESCRIPTOR.values_by_number.get(reason)
    return f"UNKNOWN_{reason}" if value is None else value.name.removeprefix(_PREFIX)


def reason_of(name: str) -> Reason.ValueType | None:
    """The reason for a wire name; None if this version of the contract does not have it."""
    return _REASON_BY_NAME.get(name)


def repeats(reason: int | None) -> bool:
    """Whether failures with this reason are faults of code, which fail again with the same
    input.
    """
    rule = None if reason is None else RULES.get(reason)
    return rule is not None and rule.repeats


def field_invalid(field: str, problem: str) -> MeshError:
    """A FIELD_INVALID error. `field` is a path such as `instance.address`; `problem` follows it in
    the message.
    """
    return MeshError(
        Reason.ERROR_REASON_FIELD_INVALID, f"{field} {problem}", metadata={"field": field}
    )


def field_missing(field: str, method: str) -> MeshError:
    """A REQUIRED_FIELD_MISSING error: the request of a method, by its full name, lacks a field."""
    return MeshError(
        Reason.ERROR_REASON_REQUIRED_FIELD_MISSING,
        f"{method} needs the field '{field}'; set this field and call again",
        metadata={"field": field, "method": method},
    )


def queue_full(message: str, queue: str, limit: int | None = None) -> MeshError:
    """A QUEUE_FULL error, to be retried after a second. `queue` names the queue, `limit` its
    size.
    """
    metadata = {"queue": queue} | ({} if limit is None else {"limit": str(limit)})
    return MeshError(
        Reason.ERROR_REASON_QUEUE_FULL, message, metadata=metadata, retry_after_s=_QUEUE_RETRY_S
    )


def unavailable(message: str, address: str) -> MeshError:
    """A PEER_UNAVAILABLE error: no server can be reached at the address."""
    return MeshError(Reason.ERROR_REASON_PEER_UNAVAILABLE, message, metadata={"address": address})


def copy_of(error: MeshError, more: Mapping[str, str] = NO_METADATA) -> MeshError:
    """A copy of the error. If one object were raised in many places, it would collect their
    tracebacks.

    `more` is added to the copy's metadata.
    """
    return MeshError(
        error.reason,
        error.message,
        metadata={**error.metadata, **more},
        retry_after_s=error.retry_after_s,
        code=error.code,
        usage=error.usage,
    )


def unforeseen(exc: BaseException, where: str, *, authors: bool = False) -> MeshError:
    """Converts an unexpected exception to INTERNAL_FAULT.

    ``authors``: the exception comes from an author's code, which may be an installed package.

    Logs the traceback under an ``error_id``, which is the same for all exceptions from one place.
    The logged traceback begins with the author's code, if the author's code has a part in it. The
    caller gets the id, the exception's type and where it was raised, but not its text, which may
    contain anything.
    """
    error_id = traceback_id(exc)
    shown = shown_traceback(exc, installed=authors)
    _log.error("unexpected failure in %s (error_id %s)", where, error_id, exc_info=shown)
    place = place_of(exc)
    return MeshError(
        Reason.ERROR_REASON_INTERNAL_FAULT,
        f"{where} failed with {type(exc).__name__}{f' at {place}' if place else ''}; for the "
        f"traceback, search for {error_id} in the log of the process where the error happened",
        metadata={"error_id": error_id, "exception": type(exc).__name__}
        | ({"at": place} if place else {}),
    )


def to_status(exc: BaseException) -> status_pb2.Status:
    """Converts an exception to a ``google.rpc.Status`` with one ErrorInfo."""
    error = exc if isinstance(exc, MeshError) else unforeseen(exc, "a call")
    status = status_pb2.Status(
        code=error.code.value[0], message=_sendable(error.message, _MAX_MESSAGE)
    )
    metadata = {
        _sendable(key, _MAX_METADATA_VALUE): _sendable(value, _MAX_METADATA_VALUE)
        for key, value in error.metadata.items()
    }
    info = error_details_pb2.ErrorInfo(reason=error.reason_name, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info, deterministic=True)
    if error.retry_after_s is not None and not math.isnan(error.retry_after_s):
        retry = error_details_pb2.RetryInfo()
        delay = min(max(error.retry_after_s, 0.0), _LONGEST_RETRY_S)
        retry.retry_delay.FromNanoseconds(round(delay * 1e9))
        status.details.add().Pack(retry)
    if error.usage:
        usage = errors_pb2.ModelUsage(usage=error.usage)
        if usage.ByteSize() <= _MAX_USAGE_BYTES:
            status.details.add().Pack(usage, deterministic=True)
    return status


def _sendable(text: str, limit: int) -> str:
    """Cuts a text to ``limit`` bytes of UTF-8; what UTF-8 can't say becomes a question mark.

    Messages quote what models and endpoints wrote, lone surrogates included.
    """
    encoded = text.encode("utf-8", "replace")
    return encoded[:limit].decode("utf-8", "ignore")


def from_status(status: status_pb2.Status) -> MeshError:
    """Converts a ``google.rpc.Status`` back. For a status without our ErrorInfo, the code
    decides.
    """
    code = _CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    reason: Reason.ValueType | None = None
    metadata: dict[str, str] = {}
    retry_after_s: float | None = None
    usage = errors_pb2.ModelUsage()
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        try:
            if detail.Unpack(info):
                if info.domain == DOMAIN:
                    reason = reason_of(info.reason)
                    metadata = dict(info.metadata)
            elif detail.Unpack(retry):
                retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
            else:
                detail.Unpack(usage)
        except DecodeError:  # a detail that is none says nothing
            continue
    if reason is None:
        reason = _reason_of_bare(code, status.message)
    return MeshError(
        reason,
        status.message[:_MAX_MESSAGE],
        metadata=metadata,
        retry_after_s=retry_after_s,
        code=code,
        usage=usage.usage,
    )


def _reason_of_bare(code: grpc.StatusCode, text: str) -> Reason.ValueType:
    """The reason of an error without one: by its code, as TRANSPORT.md says."""
    if code is _C.RESOURCE_EXHAUSTED and _OF_SIZE.search(text):
        return Reason.ERROR_REASON_MESSAGE_TOO_LARGE
    return _REASON_OF_BARE_CODE.get(code, Reason.ERROR_REASON_INTERNAL_FAULT)


# What grpc.aio says of its own when a stream ends while it writes a request: the peer has ended the
# call, and its status is lost. It is no fault of the peer's code.
_STATUS_LOST: Final = "Internal error from Core"


def from_rpc_error(exc: grpc.aio.AioRpcError, address: str, method: str) -> MeshError:
    """Converts a gRPC error of a call of ``method`` at ``address`` to a MeshError."""
    status = _status_in_trailers(exc)
    code = exc.code()
    if status is not None and status.code == code.value[0]:
        return from_status(status)
    detail = (exc.details() or code.name)[:_MAX_MESSAGE]
    if code is grpc.StatusCode.INTERNAL and detail == _STATUS_LOST:
        return connection_closed(address)
    reason = _reason_of_bare(code, detail)
    metadata = {"address": address, "method": method}
    if reason == Reason.ERROR_REASON_MESSAGE_TOO_LARGE:
        return _too_large(detail, metadata, code)
    return MeshError(reason, f"{address}: {_plain(detail, address)}", metadata=metadata, code=code)


def _plain(detail: str, address: str) -> str:
    """A gRPC library's text of a failure; of a failure to connect to ``address``, its cause
    alone.
    """
    if found := _NOT_CONNECTED.fullmatch(detail):
        at = unquote(found["at"] or address)
        tried = "" if at == address else f" to {at}"
        return f"failed to connect{tried}: {found['cause']}"
    if found := _NOT_RESOLVED.fullmatch(detail):
        return f"the host name has no address: {found['cause']}"
    return detail


def _too_large(detail: str, metadata: dict[str, str], code: grpc.StatusCode) -> MeshError:
    """What a gRPC library refused for its size, with the sizes in bytes that it may give."""
    found = _SIZES.search(detail)
    if found is not None:
        metadata |= {"size_bytes": found["size"], "limit_bytes": found["limit"]}
    # What a server sent, or a client received.
    answered = re.search(r"SERVER: Sent|CLIENT: Received", detail) is not None
    which = f"the {'response' if answered else 'request'} of {metadata['method']} was refused"
    message = f"{metadata['address']}: {which} because of its size: {detail}"
    return MeshError(Reason.ERROR_REASON_MESSAGE_TOO_LARGE, message, metadata=metadata, code=code)


def deadline_passed(method: str) -> MeshError:
    """The error for a call whose deadline passed."""
    return MeshError(
        Reason.ERROR_REASON_DEADLINE_PASSED,
        f"the deadline of {method} passed",
        metadata={"method": method},
    )


def bounded_timeout(timeout: float, method: str) -> float:
    """A call's timeout in seconds, at most a year. Raises DEADLINE_PASSED if no time is left.

    NaN means that no time is left.
    """
    if not timeout > 0:
        raise deadline_passed(method)
    return min(timeout, MAX_TIMEOUT_S)


def connection_closed(address: str) -> MeshError:
    """The error for a call whose connection was closed, by this process or without a status."""
    return unavailable(f"{address}: the connection was closed during the call", address)


def _status_in_trailers(exc: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in exc.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None
