"""The size limit of messages, and its error.

Senders check the size before they send. If gRPC itself refuses a message, the sender gets only a
bare status, or, on a stream of requests, an internal error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError

KIB: Final = 1024
MIB: Final = 1024 * KIB
MAX_MESSAGE_BYTES: Final = 64 * MIB
_KEPT: Final = 1000  # characters of a description


def too_large(
    what: str, limit: int = MAX_MESSAGE_BYTES, *, size: int | None = None, method: str = ""
) -> MeshError:
    """The error for a message over the limit. Sizes are in bytes; None: the message did not arrive
    in full.
    """
    has = "is larger than" if size is None else f"has {size} bytes, more than"
    where = f" of {method}" if method else ""
    metadata = {"limit_bytes": str(limit)}
    if size is not None:
        metadata["size_bytes"] = str(size)
    if method:
        metadata["method"] = method
    return MeshError(
        errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE,
        f"{what}{where} {has} the limit of {limit} bytes"[:_KEPT],
        metadata=metadata,
    )


def packed_request(spec: MethodSpec, request: Any) -> bytes:
    """The encoded request. A request that is already encoded stays as it is. Raises
    MESSAGE_TOO_LARGE.
    """
    data = request if isinstance(request, bytes) else spec.pack_request(request)
    _check_request(spec, data)
    return data


def packed_response(spec: MethodSpec, response: Any) -> bytes:
    """The encoded response. A response that is already encoded stays as it is. Raises
    MESSAGE_TOO_LARGE.
    """
    data = response if isinstance(response, bytes) else spec.pack_response(response)
    if len(data) > MAX_MESSAGE_BYTES:
        name = spec.response_class.DESCRIPTOR.full_name
        raise too_large(f"the response ({name})", size=len(data), method=spec.full_name)
    return data


def read_request(spec: MethodSpec, data: bytes) -> Any:
    """The request of a method from its bytes. Raises MESSAGE_TOO_LARGE, FIELD_INVALID."""
    _check_request(spec, data)
    return spec.request_of(data)


def _check_request(spec: MethodSpec, data: bytes) -> None:
    if len(data) > MAX_MESSAGE_BYTES:
        name = spec.request_class.DESCRIPTOR.full_name
        raise too_large(f"the request ({name})", size=len(data), method=spec.full_name)


class PackedRequests:
    """A caller's stream of requests, encoded, up to the first request that is too large.

    gRPC does not report errors of a stream of requests. So after such a request the stream ends,
    `error` has the error, and `give_up` is called to end the call.
    """

    def __init__(self, requests: AsyncIterator[Any], spec: MethodSpec) -> None:
        self.error: MeshError | None = None
        self.give_up: Callable[[], object] = lambda: None
        self._requests = requests
        self._spec = spec

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for request in self._requests:
            try:
                data = packed_request(self._spec, request)
            except MeshError as error:
                self.error = error
                self.give_up()
                return
            yield data
