"""Ends an RPC of this server with a typed error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc

from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, to_status

_MAX_DETAILS: Final = 200


@dataclass(frozen=True, slots=True)
class EndStatus:
    """The status with which a failed call ends. It does not refer to the error that it was made
    from.

    gRPC ends a handler by raising an exception, which the call keeps. The exception's traceback
    holds the handler's frame, and the frame holds the call. This cycle lasts until the next full
    garbage collection. So the frame must hold neither the request nor the error, whose own
    traceback holds the request.
    """

    code: grpc.StatusCode
    message: str
    status: bytes

    @classmethod
    def of(cls, error: MeshError) -> EndStatus:
        status = to_status(error)
        return cls(error.code, status.message, status.SerializeToString())

    async def send(self, rpc: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Ends the call. If gRPC's exception has not ended the handler, the handler then
        returns.
        """
        trailers = ((STATUS_DETAILS_KEY, self.status),)
        try:
            # The whole message is in the status; this copy, for other clients, is percent-encoded.
            await rpc.abort(self.code, self.message[:_MAX_DETAILS], trailing_metadata=trailers)
        except (grpc.aio.UsageError, grpc.aio.InternalError):
            return  # the call is over already: its caller has gone, or its deadline has passed
