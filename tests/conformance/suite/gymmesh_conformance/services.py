"""The contract's services by the short names that the cases use: `resource.CreateSession`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh.verify.v1 import verify_pb2

SERVICES: Final[dict[str, ServiceDescriptor]] = {
    "agent": agent_pb2.DESCRIPTOR.services_by_name["AgentService"],
    "discovery": discovery_pb2.DESCRIPTOR.services_by_name["DiscoveryService"],
    "model": model_pb2.DESCRIPTOR.services_by_name["ModelService"],
    "resource": resource_pb2.DESCRIPTOR.services_by_name["ResourceService"],
    "sandbox": sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"],
    "verify": verify_pb2.DESCRIPTOR.services_by_name["VerifyService"],
}


@dataclass(frozen=True)
class Rpc:
    """One RPC of the contract."""

    service: str  # short name
    method: MethodDescriptor

    @property
    def path(self) -> str:
        """The gRPC path, `/package.Service/Method`."""
        return f"/{self.full_service}/{self.method.name}"

    @property
    def full_service(self) -> str:
        """The full name of its service."""
        return full_name(self.service)

    @property
    def request_class(self) -> type[Message]:
        """The class of one request."""
        return message_factory.GetMessageClass(self.method.input_type)

    @property
    def response_class(self) -> type[Message]:
        """The class of one response."""
        return message_factory.GetMessageClass(self.method.output_type)

    @property
    def streams_up(self) -> bool:
        """Whether the caller sends a stream."""
        return bool(self.method.client_streaming)

    @property
    def streams_down(self) -> bool:
        """Whether the server sends a stream."""
        return bool(self.method.server_streaming)


def rpc(name: str) -> Rpc:
    """Finds `resource.CreateSession` and the like. Raises LookupError for what there is not."""
    service, _, method = name.partition(".")
    if service not in SERVICES or method not in SERVICES[service].methods_by_name:
        raise LookupError(f"the contract has no RPC '{name}'")
    return Rpc(service, SERVICES[service].methods_by_name[method])


def full_name(service: str) -> str:
    """`resource` -> `gymmesh.resource.v1.ResourceService`."""
    return str(SERVICES[service].full_name)


def with_unknown_field(request: Message, size: int) -> Message:
    """The request with a field of that many bytes that no version of the contract has (yet)."""
    varint, rest = bytearray(), size
    while rest > 127:
        varint.append(rest & 127 | 128)
        rest >>= 7
    varint.append(rest)
    # Number 40,000, length-delimited.
    field = b"\x82\xc4\x13" + bytes(varint) + b"x" * size
    return type(request).FromString(request.SerializeToString() + field)


def methods(service: str) -> list[Rpc]:
    """All RPCs of a service, by its full name."""
    for short, descriptor in SERVICES.items():
        if descriptor.full_name == service:
            return [Rpc(short, method) for method in _methods(descriptor)]
    raise LookupError(f"the contract has no service '{service}'")


def _methods(descriptor: Any) -> list[MethodDescriptor]:
    return list(descriptor.methods)
