"""The peer for a service in the same process: its servicer, called directly.

Messages are handed over, not copied; nobody mutates a message received.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final

from gymmesh_runtime.binding import Binding, BoundMethod
from gymmesh_runtime.context import CallContext

_NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


class DirectPeer:
    """Has the methods of one gRPC service, bound to a servicer in this process.

    Where the servicer has the second form of a response stream (see binding.py), the peer has it,
    too: ``await peer.push_<Method>(request, timeout=…, send=…)``.
    """

    def __init__(self, binding: Binding) -> None:
        for name, method in binding.methods.items():
            call = _stream(method) if method.spec.server_streaming else _unary(method)
            setattr(self, name, call)
            if method.pushes:
                setattr(self, f"push_{name}", _push(method))


def _unary(method: BoundMethod) -> Any:
    full_name = method.spec.full_name
    unary = method.unary

    def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = _NO_METADATA
    ) -> Coroutine[Any, Any, Any]:
        return unary(request, CallContext(full_name, time.monotonic() + timeout, metadata))

    return call


def _stream(method: BoundMethod) -> Any:
    full_name = method.spec.full_name
    stream = method.stream

    def call(
        request: Any, *, timeout: float, metadata: Mapping[str, str] = _NO_METADATA
    ) -> AsyncIterator[Any]:
        return stream(request, CallContext(full_name, time.monotonic() + timeout, metadata))

    return call


def _push(method: BoundMethod) -> Any:
    full_name = method.spec.full_name
    push = method.push

    def call(
        request: Any,
        *,
        timeout: float,
        send: Callable[[Any], Any],
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> Coroutine[Any, Any, None]:
        return push(request, CallContext(full_name, time.monotonic() + timeout, metadata), send)

    return call
