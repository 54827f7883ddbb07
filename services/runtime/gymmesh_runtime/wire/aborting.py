"""How an RPC of this server ends with a typed error."""

from __future__ import annotations

from typing import Any, Final

import grpc

from gymmesh_runtime.errors import STATUS_DETAILS_KEY, MeshError, to_status

_MAX_DETAILS: Final = 200


async def abort(rpc: grpc.aio.ServicerContext[Any, Any], error: MeshError) -> None:
    """Ends a call; the handler is to return, unless gRPC's own exception ends it before."""
    status = to_status(error)
    trailers = ((STATUS_DETAILS_KEY, status.SerializeToString()),)
    try:
        # The whole message is in the status; this copy, for other clients, is percent-encoded.
        await rpc.abort(error.code, status.message[:_MAX_DETAILS], trailing_metadata=trailers)
    except (grpc.aio.UsageError, grpc.aio.InternalError):
        return  # the call is over already: its caller has gone, or its deadline has passed
