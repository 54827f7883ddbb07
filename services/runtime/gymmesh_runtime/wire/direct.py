"""The peer for a service in the same process: its servicer, called directly.

Messages are handed over, not copied; nobody mutates a message received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.wire.packed import packer, unpacked


class DirectPeer:
    """Has the methods of one gRPC service, bound to a servicer in this process.

    Where the servicer has the second form of a response stream (see binding.py), the peer has it,
    too: ``await peer.push_<Method>(request, timeout=…, send=…)``. Streams both ways are there as
    ``packed_<Method>``, too, as elsewhere (see plain.py).
    """

    def __init__(self, binding: Binding) -> None:
        for name, method in binding.methods.items():
            if method.spec.client_streaming:
                setattr(self, name, _both_ways(method))
                setattr(self, f"packed_{name}", _packed(method))
            else:
                setattr(self, name, method.stream if method.spec.server_streaming else method.call)
            if method.pushes:
                setattr(self, f"push_{name}", method.call)


def _both_ways(method: BoundMethod) -> Any:
    spec = method.spec
    read_response = partial(spec.response_of, address="direct")

    async def call(
        requests: AsyncIterator[Any],
        *,
        timeout: float | None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> AsyncIterator[Any]:
        asked = unpacked(spec.request_of, requests)
        served: Any = method.stream(asked, timeout=timeout, metadata=metadata)
        async with aclosing(served):
            async for response in unpacked(read_response, served):
                yield response

    return call


def _packed(method: BoundMethod) -> Any:
    both_ways, pack = _both_ways(method), packer(method.spec.response_class)

    async def call(
        requests: AsyncIterator[Any],
        *,
        timeout: float | None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> AsyncIterator[bytes]:
        async with aclosing(both_ways(requests, timeout=timeout, metadata=metadata)) as responses:
            async for response in responses:
                yield pack(response)

    return call
