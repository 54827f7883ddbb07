"""How an RPC of this server ends with a typed error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc

from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, to_status

_MAX_DETAILS: Final = 200


@dataclass(frozen=True, slots=True)
class Ending:
    """What a call's caller is told of an error, without the error itself.

    gRPC ends a handler by an exception, which the call keeps, and whose traceback has the handler's
    frame, which has the call: a cycle. All that the frame holds is thus held until the next full
    garbage collection, so it must hold neither the request, nor the error, in whose own traceback
    the request is.
    """

    code: grpc.StatusCode
    message: str
    status: bytes

    @classmethod
    def of(cls, error: MeshError) -> Ending:
        """The ending for an error."""
        status = to_status(error)
        return cls(error.code, status.message, status.SerializeToString())

    async def send(self, rpc: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Ends the call; the handler is to return, unless gRPC's own exception ends it before."""
        trailers = ((STATUS_DETAILS_KEY, self.status),)
        try:
            # The whole message is in the status; this copy, for other clients, is percent-encoded.
            await rpc.abort(self.code, self.message[:_MAX_DETAILS], trailing_metadata=trailers)
        except (grpc.aio.UsageError, grpc.aio.InternalError):
            return  # the call is over already: its caller has gone, or its deadline has passed
