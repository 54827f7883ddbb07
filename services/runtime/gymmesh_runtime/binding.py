"""A servicer bound to its contract: what every call goes through, on every path.

Direct calls, mux frames and plain gRPC all arrive here, so that a call is
checked, bounded, counted and its failure typed in the same way on each:

    required fields -> deadline -> the servicer's method -> error mapping -> metrics

A servicer may offer a response stream in a second form, for callers in its own process:
``async def push_<Method>(request, context, send)`` hands what the stream carries to ``send``
as it comes, which costs a fraction of an async generator's steps.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from time import monotonic, perf_counter
from typing import Any

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.alarm import Alarm
from gymmesh_runtime.begun import resumed
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import MethodSpec, methods_of, required_fields
from gymmesh_runtime.errors import MeshError, deadline_passed, unforeseen
from gymmesh_runtime.timers import Limit


class BoundMethod:
    """One RPC of one servicer."""

    __slots__ = ("_codes", "_handler", "_missing", "_push", "_seconds", "spec")

    def __init__(self, spec: MethodSpec, handler: Any, push: Any = None) -> None:
        self.spec = spec
        self._handler = handler
        self._push = push
        self._missing = required_fields(spec.request_class)
        self._seconds = metrics.RPC_SECONDS.labels(spec.full_name)
        self._codes: dict[str, Any] = {}

    def unary(self, request: Any, context: CallContext) -> Coroutine[Any, Any, Any]:
        """Serves a call with one response. Raises MeshError and nothing else."""
        return self._serve(self._handler(request, context), request, context)

    @property
    def pushes(self) -> bool:
        """Whether the servicer has the method's second form."""
        return self._push is not None

    def push(
        self, request: Any, context: CallContext, send: Callable[[Any], Any]
    ) -> Coroutine[Any, Any, None]:
        """Serves a call with a response stream in its second form. Raises MeshError alone."""
        return self._serve(self._push(request, context, send), request, context)

    async def _serve(
        self, call: Coroutine[Any, Any, Any], request: Any, context: CallContext
    ) -> Any:
        """One coroutine for all of it: thousands of calls wait here, each frame in memory."""
        started = perf_counter()
        code = "OK"
        limit: Limit | None = None
        try:
            try:
                if self._missing(request) is not None:
                    self.spec.check(request)  # raises
                del request  # not to be kept for as long as the call takes
                deadline = context.deadline
                remaining = math.inf if deadline is None else deadline - monotonic()
                if remaining <= 0:
                    raise deadline_passed(self.spec.full_name)
            except BaseException:
                call.close()
                raise
            if deadline is None:
                return await call
            try:
                waits_for = call.send(None)
            except StopIteration as ended:
                return ended.value  # it never waited, so there was nothing to bound
            limit = Limit(remaining)
            with limit:
                return await resumed(call, waits_for)
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except Exception as exc:
            overdue = limit is not None and limit.expired and isinstance(exc, TimeoutError)
            error = deadline_passed(self.spec.full_name) if overdue else self._typed(exc)
            code = error.code.name
            raise error from None
        finally:
            self._count(code, started)

    async def stream(self, request: Any, context: CallContext) -> AsyncIterator[Any]:
        """Serves a call with a response stream. Raises MeshError and nothing else."""
        started = perf_counter()
        code = "OK"
        responses: Any = None
        try:
            if not self.spec.client_streaming:
                self.spec.check(request)
            responses = self._handler(request, context)
            async for response in _until_deadline(responses, context):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except Exception as exc:
            error = self._typed(exc)
            code = error.code.name
            raise error from None
        finally:
            self._count(code, started)
            if responses is not None:
                await responses.aclose()

    def _typed(self, exc: Exception) -> MeshError:
        return exc if isinstance(exc, MeshError) else unforeseen(exc, self.spec.full_name)

    def _count(self, code: str, started: float) -> None:
        counter = self._codes.get(code)
        if counter is None:
            counter = self._codes[code] = metrics.RPCS.labels(self.spec.full_name, code)
        counter.inc()
        self._seconds.observe(perf_counter() - started)


async def _until_deadline(responses: Any, context: CallContext) -> AsyncIterator[Any]:
    remaining = context.time_remaining()
    if remaining == math.inf:
        async for response in responses:
            yield response
        return
    alarm = Alarm(remaining)
    iterator = aiter(responses)
    try:
        # A servicer that never waits would not notice an alarm: so the clock is asked, too.
        while context.time_remaining() > 0:
            try:
                response = await alarm.wait(anext(iterator))
            except StopAsyncIteration:
                return
            except TimeoutError:
                if alarm.rang:
                    break
                raise
            yield response
        raise deadline_passed(context.method)
    finally:
        alarm.stop()


class Binding:
    """A servicer and the contract of one gRPC service.

    Methods that the servicer lacks answer NOT_OFFERED.
    """

    def __init__(self, service: str, servicer: object) -> None:
        self.service = service
        self.methods: Mapping[str, BoundMethod] = {
            name: BoundMethod(
                spec,
                getattr(servicer, name, None) or _not_offered(spec),
                getattr(servicer, f"push_{name}", None) if spec.server_streaming else None,
            )
            for name, spec in methods_of(service).items()
        }


def _not_offered(spec: MethodSpec) -> Any:
    def error() -> MeshError:  # a shared one would collect the traceback of every call
        return MeshError(
            errors_pb2.ERROR_REASON_NOT_OFFERED,
            f"this server does not offer {spec.full_name}",
            metadata={"method": spec.full_name},
        )

    async def unary(request: Any, context: CallContext) -> Any:
        raise error()

    async def stream(request: Any, context: CallContext) -> AsyncIterator[Any]:
        raise error()
        yield  # makes this an async generator

    return stream if spec.server_streaming else unary
