"""A receiver of OTLP traces over gRPC, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Exported:
    """A span as it arrived. `service`: the `service.name` of what exported it."""

    service: str
    span: trace_pb2.Span

    @property
    def attributes(self) -> dict[str, Any]:
        found = {}
        for one in self.span.attributes:
            kind = one.value.WhichOneof("value") or ""
            value = getattr(one.value, kind)
            if kind == "array_value":
                value = [part.string_value for part in value.values]
            found[one.key] = value
        return found


@dataclass
class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what it is sent."""

    address: str = ""
    spans: list[Exported] = field(default_factory=list)
    text: bytes = b""

    async def Export(  # the RPC's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.text += request.SerializeToString()
        for resource in request.resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [Exported(names["service.name"], one) for one in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> list[Exported]:
        """The spans of that name, in the order in which they began."""
        found = [one for one in self.spans if one.span.name == name]
        return sorted(found, key=lambda one: one.span.start_time_unix_nano)

    def below(self, parent: Exported) -> list[str]:
        """The names of a span's children, in the order in which they began."""
        children = [
            one.span for one in self.spans if one.span.parent_span_id == parent.span.span_id
        ]
        return [one.name for one in sorted(children, key=lambda one: one.start_time_unix_nano)]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver, at a port that the system chooses."""
    receiver = Receiver()
    server = grpc.aio.server()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server  # it has no types
    add(receiver, server)
    receiver.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield receiver
    finally:
        await server.stop(0)
