"""OpenTelemetry traces: off unless `mesh.traces` asks for them, and loaded only then.

A rollout is one trace. The trace id is derived from the rollout's id, so the rollout's id is enough
to find the trace, and all attempts share it. The agent begins the trace. A call to a peer carries
W3C's `traceparent` in its metadata, and the peer continues the trace. So the trace also has the
spans of an environment's instrumented code.

Spans are exported by OTLP over gRPC. The standard environment variables (OTEL_EXPORTER_OTLP_*,
OTEL_TRACES_SAMPLER*, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_* and others) have their usual meaning.

No name or attribute of a span has text of a model, a task or a tool: spans have the reasons of
errors, but neither their messages nor their tracebacks.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra

IS_FACE = True  # see tools/import_faces.py

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Span

    from gymmesh_runtime.contract import MethodSpec

_log = logging.getLogger("gymmesh.traces")

SpanKindName: TypeAlias = Literal["internal", "client", "server"]
Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]

#: Metadata of a call: the span that it is made in, as W3C's Trace Context writes it.
_TRACEPARENT: Final = "traceparent"
_CLOSE_S: Final = 5.0
_ERROR: Final = "error.type"
_OTEL: Final = Extra(
    "otel", ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
)

# The id of the trace that the next span without a parent begins.
_begins: ContextVar[int | None] = ContextVar("gymmesh_trace_begins", default=None)
_active: Tracing | None = None


def active() -> Tracing | None:
    """The tracing of this process; None if the process is not traced."""
    return _active


def trace_id_of(rollout_id: str) -> int:
    """The id of a rollout's trace, 128 bits: BLAKE2b of the rollout's id in UTF-8."""
    digest = hashlib.blake2b(rollout_id.encode(errors="surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest, "big") or 1  # OpenTelemetry takes no 0


def mark_failed(span: Span, reason: str) -> None:
    """Marks a span as failed, with this reason."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(_ERROR, reason)
    span.set_status(Status(StatusCode.ERROR))


class Tracing:
    """Creates spans."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("gymmesh", version("gymmesh"))
        self._propagator = TraceContextTextMapPropagator()
        self._kinds = SpanKind

    def span(
        self, name: str, kind: SpanKindName = "internal", attributes: Attributes | None = None
    ) -> AbstractContextManager[Span]:
        """Opens a span below the current span. The span is current inside the context. A MeshError
        that leaves the context marks the span as failed.
        """
        return self._current(name, kind, attributes, None)

    @contextmanager
    def rollout(self, rollout_id: str, name: str, attributes: Attributes) -> Iterator[Span]:
        """Opens the first span of a rollout's trace. The span is current inside the context."""
        from opentelemetry.context import Context

        begins = _begins.set(trace_id_of(rollout_id))
        try:
            with self._current(name, "internal", attributes, Context()) as span:
                yield span
        finally:
            _begins.reset(begins)

    def metadata(self) -> dict[str, str]:
        """The metadata that a call made now carries; empty outside of spans."""
        carried: dict[str, str] = {}
        self._propagator.inject(carried)
        return carried

    def trace_id(self) -> str:
        """The id of the current trace as hexadecimal digits; empty outside of spans."""
        from opentelemetry.trace import get_current_span

        found = get_current_span().get_span_context()
        return f"{found.trace_id:032x}" if found.is_valid else ""

    def serving(self, spec: MethodSpec, handler: Any) -> Any:
        """The handler of an RPC. It continues the trace of a call, if the call carries one."""
        if spec.client_streaming:  # one lasts as long as its caller, over many rollouts
            return handler

        async def answered(request: Any, context: CallContext) -> Any:
            with self._served(spec, context):
                return await handler(request, context)

        async def streamed(request: Any, context: CallContext) -> AsyncIterator[Any]:
            with self._served(spec, context):
                async with aclosing(handler(request, context)) as responses:
                    async for response in responses:
                        yield response

        going_on = streamed if spec.server_streaming else answered

        def served(request: Any, context: CallContext) -> Any:
            handle = going_on if _TRACEPARENT in context.metadata else handler
            return handle(request, context)

        return served

    @contextmanager
    def _served(self, spec: MethodSpec, context: CallContext) -> Iterator[None]:
        service, _, method = spec.full_name.rpartition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        parent = self._propagator.extract(context.metadata)
        with self._current(spec.full_name, "server", attributes, parent) as span:
            try:
                yield
            except MeshError:
                raise
            except Exception:  # nobody foresaw it; the binding types and logs it
                mark_failed(span, "INTERNAL_FAULT")
                raise

    @contextmanager
    def _current(
        self, name: str, kind: SpanKindName, attributes: Attributes | None, parent: Any
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=self._kinds[kind.upper()],
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except MeshError as error:
                mark_failed(span, error.reason_name)
                raise

    async def close(self) -> None:
        """Exports the remaining spans, and gives up after some seconds."""
        # In a thread that nobody waits for: a receiver that is gone is tried again for long.
        closing = Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)
        if closing.is_alive():
            _log.warning("the last traces could not be exported within %g s and are lost", _CLOSE_S)


class TracedPeer:
    """A peer whose calls carry the current trace."""

    def __init__(self, peer: Any, tracing: Tracing) -> None:
        self._peer = peer
        self._tracing = tracing

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._peer, name)

        def carrying(request: Any, **named: Any) -> Any:
            carried = self._tracing.metadata()
            if carried:
                named["metadata"] = {**named.get("metadata", {}), **carried}
            return call(request, **named)

        setattr(self, name, carrying)
        return carrying


def traced(peer: Any) -> Any:
    """The peer. If this process is traced, the peer's calls carry the current trace."""
    return peer if _active is None else TracedPeer(peer, _active)


@asynccontextmanager
async def tracing(endpoint: str = "", services: Sequence[str] = ()) -> AsyncIterator[None]:
    """Traces this process while the context is open. Does nothing if the process is already traced.

    Args:
        endpoint: of the OTLP receiver, such as `http://127.0.0.1:4317`; empty: the value of
            OTEL_EXPORTER_OTLP_ENDPOINT, or `http://127.0.0.1:4317` if that is not set.
        services: the names of the services of this process, for `service.name`.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    global _active
    if _active is not None:
        yield
        return
    _active = own = Tracing(_provider(endpoint, services))
    try:
        yield
    finally:
        _active = None
        await own.close()


def _provider(endpoint: str, services: Sequence[str]) -> TracerProvider:
    _OTEL.require("tracing", path="mesh.traces")
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {"service.namespace": "gymmesh"}
    if "OTEL_SERVICE_NAME" not in os.environ:
        named["service.name"] = ",".join(services) or "gymmesh"
    provider = TracerProvider(
        resource=Resource.create(named), id_generator=_ids(), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint or None)))
    return provider


def _ids() -> IdGenerator:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class RolloutIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _begins.get() or super().generate_trace_id()

        def is_trace_id_random(self) -> bool:
            return True  # a digest is as evenly spread, which is what samplers ask for

    return RolloutIds()
