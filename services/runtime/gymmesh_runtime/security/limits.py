"""How much of one process each identity may use at a time: calls in flight, their rate, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.config import LimitsConfig

#: When to try again, of what becomes free when a call ends.
_RETRY_S: Final = 0.5


@dataclass(slots=True)
class _Taken:
    """What one identity has taken. The bucket holds the calls that may come now."""

    calls: int = 0
    streams: int = 0
    bucket: float = 0.0
    filled: float = field(default_factory=monotonic)


class IdentityLimiter:
    """Counts the calls and streams of identities. Each `enter` needs a `leave`. `clock`: monotonic
    seconds.
    """

    def __init__(self, limits: LimitsConfig, clock: Callable[[], float] = monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._taken: dict[str, _Taken] = {}

    def enter(self, identity: str, *, stream: bool, call: bool = True) -> None:
        """Begins a call, a stream or both. Raises QUEUE_FULL, with the time after which to
        retry.
        """
        limits = self._limits
        taken = self._taken.get(identity)
        if taken is None:
            burst = max(1.0, limits.calls_per_s)
            taken = self._taken[identity] = _Taken(bucket=burst, filled=self._clock())
        if call and limits.calls and taken.calls >= limits.calls:
            raise _full("calls in flight", limits.calls, _RETRY_S)
        if stream and limits.streams and taken.streams >= limits.streams:
            raise _full("streams", limits.streams, _RETRY_S)
        if call and limits.calls_per_s:
            self._draw(taken)
        taken.calls += call
        taken.streams += stream

    def leave(self, identity: str, *, stream: bool, call: bool = True) -> None:
        taken = self._taken[identity]
        taken.calls -= call
        taken.streams -= stream

    @contextmanager
    def connected(self, identity: str) -> Iterator[None]:
        """Counts a connection of the mux while the context is open. It is a stream, but not a
        call.
        """
        self.enter(identity, stream=True, call=False)
        try:
            yield
        finally:
            self.leave(identity, stream=True, call=False)

    def limited(self, spec: MethodSpec, handler: Any) -> Any:
        """A servicer's method whose calls are counted while they run."""
        if spec.server_streaming:

            async def serve(request: Any, context: CallContext) -> AsyncIterator[Any]:
                self.enter(context.identity, stream=True)
                try:
                    async with aclosing(handler(request, context)) as responses:
                        async for response in responses:
                            yield response
                finally:
                    self.leave(context.identity, stream=True)

            return serve

        async def answer(request: Any, context: CallContext) -> Any:
            self.enter(context.identity, stream=False)
            try:
                return await handler(request, context)
            finally:
                self.leave(context.identity, stream=False)

        return answer

    def _draw(self, taken: _Taken) -> None:
        """Takes a call out of the bucket, which fills at the rate up to a second's worth."""
        rate, now = self._limits.calls_per_s, self._clock()
        taken.bucket = min(max(1.0, rate), taken.bucket + (now - taken.filled) * rate)
        taken.filled = now
        if taken.bucket < 1.0:
            raise _full("calls a second", rate, (1.0 - taken.bucket) / rate)
        taken.bucket -= 1.0


def _full(what: str, limit: float, retry_s: float) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"the caller has reached its limit ({what}: {limit:g}); retry later",
        metadata={"queue": what, "limit": f"{limit:g}"},
        retry_after_s=retry_s,
    )
