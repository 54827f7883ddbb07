"""The peer for a service in the same process: calls its servicer directly.

Messages are passed on, not copied. So nobody may change a message that they received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.sizes import packed_response


class DirectPeer:
    """Has the methods of one gRPC service, bound to a servicer in this process."""

    def __init__(self, binding: Binding) -> None:
        for name, method in binding.methods.items():
            if method.spec.client_streaming:
                setattr(self, name, _both_ways(method))
            else:
                setattr(self, name, method.stream if method.spec.server_streaming else method.call)


def _both_ways(method: BoundMethod) -> Any:
    """A method with streams both ways; called as PlainPeer's, with ``read`` if wanted."""
    spec = method.spec

    async def call(
        requests: AsyncIterator[Any],
        *,
        timeout: float | None,
        metadata: Mapping[str, str] = NO_METADATA,
        read: Callable[[bytes], Any] | None = None,
    ) -> AsyncIterator[Any]:
        # As on a wire, a caller may hand over the bytes of a request.
        asked = (spec.request_of(one) if isinstance(one, bytes) else one async for one in requests)
        served: Any = method.stream(asked, timeout=timeout, metadata=metadata)
        async with aclosing(served) as responses:
            async for response in responses:
                if read is not None:
                    yield read(packed_response(spec, response))
                elif isinstance(response, bytes):
                    yield spec.response_of(response, "direct")
                else:
                    yield response

    return call
