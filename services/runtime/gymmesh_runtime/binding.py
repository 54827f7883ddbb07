"""A servicer bound to its contract: what every call goes through, on every path.

Direct calls, mux frames and plain gRPC all arrive here, so that a call is
checked, bounded, counted and its failure typed in the same way on each:

    required fields -> deadline -> the servicer's method -> error mapping -> metrics

A method with one response is a coroutine function, one with a response stream an async generator.
A caller in the same process may bind a coroutine function that hands what a stream would carry to
a sink (``BoundMethod.call`` with ``sink``): it is checked, bounded and counted as any call.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache, partial
from time import monotonic
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.context import NO_METADATA, CallContext
from gymmesh_runtime.contract import MethodSpec, in_bytes, methods_of, required_fields
from gymmesh_runtime.errors import MeshError, deadline_passed, unforeseen
from gymmesh_runtime.sizes import read_request
from gymmesh_runtime.telemetry.tracing import active
from gymmesh_runtime.timers import MAX_TIMEOUT_S, Limit


class BoundMethod:
    """One RPC of one servicer, for the calls of one event loop.

    ``timeout`` is in seconds; None: there is no deadline. ``identity`` and ``connection``: see
    CallContext.
    """

    __slots__ = (
        "_counts",
        "_handler",
        "_missing",
        "_name",
        "_seconds",
        "spec",
    )

    def __init__(self, spec: MethodSpec, handler: Any) -> None:
        self.spec = spec
        self._name = spec.full_name
        self._handler = handler
        self._missing = required_fields(spec.request_class)
        if spec.read_request is bytes:
            self._missing = _nothing_missing
        self._seconds = metrics.RPC_SECONDS.labels(spec.full_name)
        #: The counter for a status code.
        self._counts = cache(partial(metrics.RPCS.labels, spec.full_name))

    def wrap(self, wrapper: Callable[[MethodSpec, Any], Any]) -> None:
        """Replaces the handler by the result of ``wrapper``, which gets the method and the
        handler.
        """
        self._handler = wrapper(self.spec, self._handler)

    def read(self, data: bytes) -> Any:
        """Decodes the request of a call.

        Raises FIELD_INVALID or MESSAGE_TOO_LARGE. In this case it counts the call.
        """
        try:
            return read_request(self.spec, data)
        except MeshError as error:
            self._counts(error.code.name).inc()
            raise

    async def call(
        self,
        request: Any,
        timeout: float | None,
        metadata: Mapping[str, str] = NO_METADATA,
        sink: Callable[[Any], Any] | None = None,
        identity: str = "",
        connection: object | None = None,
    ) -> Any:
        """Serves a call of a coroutine function. Raises only MeshError.

        ``sink``: passed to the function, which sends it the messages of a response stream.
        """
        # One coroutine for all of it: thousands of calls wait here, each frame in memory.
        started = monotonic()
        code = "OK"
        limit: Limit | None = None
        try:
            if self._missing(request) is not None:
                self.spec.check(request)  # raises
            deadline = None
            if timeout is not None:
                if not timeout > 0.0:
                    raise deadline_passed(self._name)
                deadline = started + timeout
                limit = Limit(min(timeout, MAX_TIMEOUT_S))
            context = CallContext(self._name, deadline, metadata, identity, connection)
            if sink is None:
                serving = self._handler(request, context)
            else:
                serving = self._handler(request, context, sink)
            del request  # not to be kept for as long as the call takes
            return await serving
        except (Exception, asyncio.CancelledError) as failure:
            failure = self._ending(failure, limit)
            code = failure.code.name if isinstance(failure, MeshError) else "CANCELLED"
            raise failure from None
        finally:
            if limit is not None:
                limit.leave()
            self._counts(code).inc()
            self._seconds.observe(monotonic() - started)

    async def stream(
        self,
        request: Any,
        *,
        timeout: float | None,
        metadata: Mapping[str, str] = NO_METADATA,
        identity: str = "",
        connection: object | None = None,
    ) -> AsyncIterator[Any]:
        """Serves a call with a response stream. Raises only MeshError."""
        started = monotonic()
        code = "OK"
        responses: Any = None
        try:
            if not self.spec.client_streaming:
                self.spec.check(request)
            deadline = None if timeout is None else started + timeout
            context = CallContext(self._name, deadline, metadata, identity, connection)
            responses = self._handler(request, context)
            async for response in _until_deadline(responses, context):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except Exception as exc:
            error = self._typed(exc)
            code = error.code.name
            try:
                raise error from None
            finally:
                del error  # its traceback has this frame, which would hold it
        finally:
            self._counts(code).inc()
            self._seconds.observe(monotonic() - started)
            if responses is not None:
                await responses.aclose()

    def _ending(
        self, exc: Exception | asyncio.CancelledError, limit: Limit | None
    ) -> MeshError | asyncio.CancelledError:
        """The error of a failed call; a cancellation passes if it is the caller's own."""
        if isinstance(exc, asyncio.CancelledError):
            overdue = limit is not None and limit.alone
            return deadline_passed(self._name) if overdue else exc
        overdue = limit is not None and limit.expired and isinstance(exc, TimeoutError)
        return deadline_passed(self._name) if overdue else self._typed(exc)

    def _typed(self, exc: Exception) -> MeshError:
        return exc if isinstance(exc, MeshError) else unforeseen(exc, self._name)


async def _until_deadline(responses: Any, context: CallContext) -> AsyncIterator[Any]:
    remaining = context.time_remaining()
    if remaining == math.inf:
        async for response in responses:
            yield response
        return
    iterator = aiter(responses)
    while remaining > 0:
        # One for each wait: a limit may not stay open across a yield.
        limit = Limit(min(remaining, MAX_TIMEOUT_S))
        try:
            with limit:
                response = await anext(iterator)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if limit.expired:
                break
            raise
        yield response
        remaining = context.time_remaining()
    raise deadline_passed(context.method)


def _nothing_missing(request: bytes) -> None:
    """Of a request that is passed on unread: whoever serves it looks."""


class Binding:
    """A servicer and the contract of one gRPC service.

    Methods that the servicer lacks answer NOT_OFFERED. ``unread``: the servicer accepts and returns
    encoded messages, to forward them.
    """

    def __init__(self, service: str, servicer: object, *, unread: bool = False) -> None:
        self.service = service
        specs = methods_of(service)
        if unread:
            specs = {name: in_bytes(spec) for name, spec in specs.items()}
        self.methods: Mapping[str, BoundMethod] = {
            name: BoundMethod(spec, getattr(servicer, name, None) or _not_offered(spec))
            for name, spec in specs.items()
        }
        traces = active()
        if traces is not None:
            for method in self.methods.values():
                method.wrap(traces.serving)


def not_offered(method: str) -> MeshError:
    """The error for a call of a method that a server lacks. ``method``: the full name."""
    # A new one each time: a shared one would collect the traceback of every call.
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        f"this server does not offer {method}",
        metadata={"method": method},
    )


def _not_offered(spec: MethodSpec) -> Any:
    async def unary(request: Any, context: CallContext) -> Any:
        raise not_offered(spec.full_name)

    async def stream(request: Any, context: CallContext) -> AsyncIterator[Any]:
        raise not_offered(spec.full_name)
        yield  # makes this an async generator

    return stream if spec.server_streaming else unary
