"""Methods, their message classes, permissions and REQUIRED fields, from the descriptors."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from google.api import field_behavior_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor import (
    Descriptor,
    FieldDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.message import DecodeError, Message

from gymmesh.access.v1 import access_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError, field_missing

#: The contract's version. The minor part grows with every addition.
CONTRACT_VERSION: Final = "1.0"


def speaks_ours(version: str) -> bool:
    """Whether a contract version has our major version. True for an empty version."""
    return not version or version.partition(".")[0] == CONTRACT_VERSION.partition(".")[0]


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One RPC as the contract defines it."""

    name: str
    full_name: str  # package.Service/Method
    request_class: type[Message]
    response_class: type[Message]
    client_streaming: bool
    server_streaming: bool
    permission: str  # that a caller needs, as configurations name it; empty: none allows it
    # How messages become bytes and come out of them, at hand: their classes look names up.
    pack_request: Callable[[Any], bytes]
    read_request: Callable[[bytes], Any]
    pack_response: Callable[[Any], bytes]
    read_response: Callable[[bytes], Any]

    @property
    def shape(self) -> str:
        """The word for this kind of method in the names of gRPC's functions, such as
        ``unary_stream``.
        """
        asks = "stream" if self.client_streaming else "unary"
        return f"{asks}_stream" if self.server_streaming else f"{asks}_unary"

    def check(self, request: Any) -> None:
        """Raises REQUIRED_FIELD_MISSING if a REQUIRED field of the request is not set.

        An encoded request is not checked.
        """
        if isinstance(request, bytes):
            return
        missing = required_fields(self.request_class)(request)
        if missing is not None:
            raise field_missing(missing, self.full_name)

    def request_of(self, data: bytes) -> Any:
        """Decodes a request. Raises FIELD_INVALID if the bytes are not a request of this method."""
        try:
            return self.read_request(data)
        except DecodeError:
            name = self.request_class.DESCRIPTOR.full_name
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the request of {self.full_name} cannot be decoded as {name}",
                metadata={"field": "", "method": self.full_name},
            ) from None

    def response_of(self, data: bytes, address: str) -> Any:
        """Decodes an answer of the peer at `address`. Raises CONTRACT_VIOLATED."""
        try:
            return self.read_response(data)
        except DecodeError:
            name = self.response_class.DESCRIPTOR.full_name
            raise MeshError(
                errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
                f"{address}: the response of {self.full_name} cannot be decoded as {name}",
                metadata={"rule": "response", "method": self.full_name, "address": address},
            ) from None


def in_bytes(spec: MethodSpec) -> MethodSpec:
    """The method with messages that stay encoded, for code that forwards them."""
    return replace(
        spec, pack_request=bytes, read_request=bytes, pack_response=bytes, read_response=bytes
    )


@cache
def methods_of(service: str) -> dict[str, MethodSpec]:
    """Returns the methods of a service by name.

    ``service`` is a full name such as ``gymmesh.model.v1.ModelService``. Raises
    LookupError for a service that is not in the contract.
    """
    package, _, simple_name = service.rpartition(".")
    parts = package.split(".")
    if len(parts) != 3 or parts[0] != "gymmesh":
        raise LookupError(f"'{service}' is not a service of the contract")
    try:
        module = importlib.import_module(f"{package}.{parts[1]}_pb2")
        descriptor: ServiceDescriptor = module.DESCRIPTOR.services_by_name[simple_name]
    except (ImportError, KeyError) as exc:
        raise LookupError(f"'{service}' is not a service of the contract") from exc
    return {method.name: _spec_of(service, method) for method in descriptor.methods}


@cache
def methods_by_full_name() -> dict[str, MethodSpec]:
    """Returns every method of the contract by `package.Service/Method`."""
    contract = importlib.util.find_spec("gymmesh")
    assert contract is not None
    found = dict[str, MethodSpec]()
    for module in pkgutil.walk_packages(contract.submodule_search_locations, "gymmesh."):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(module.name).DESCRIPTOR
            for service in file.services_by_name.values():
                found |= {one.full_name: one for one in methods_of(service.full_name).values()}
    return found


def _spec_of(service: str, method: MethodDescriptor) -> MethodSpec:
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    return MethodSpec(
        name=method.name,
        full_name=f"{service}/{method.name}",
        request_class=request,
        response_class=response,
        client_streaming=method.client_streaming,
        server_streaming=method.server_streaming,
        permission=_permission_of(method),
        pack_request=request.SerializeToString,
        read_request=request.FromString,
        pack_response=response.SerializeToString,
        read_response=response.FromString,
    )


def _permission_of(method: MethodDescriptor) -> str:
    value = method.GetOptions().Extensions[access_pb2.permission]
    name = access_pb2.Permission.Name(value).removeprefix("PERMISSION_")
    return "" if name == "UNSPECIFIED" else name.lower()


def required_fields(message_class: type[Message]) -> Callable[[Any], str | None]:
    """Returns a function that names the first REQUIRED field that is not set, or None.

    Fields of sub-messages are checked if the sub-message is set. A field without presence is
    treated as not set if it has its default value.
    """
    return _fields_of(message_class.DESCRIPTOR).first_missing


class _Field(NamedTuple):
    """A field that is checked: it is REQUIRED, or messages in it have fields that are."""

    name: str
    is_required: bool
    has_presence: bool
    is_repeated: bool
    nested: _CheckedFields | None


class _CheckedFields:
    """What is checked in the messages of one type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._has = message_factory.GetMessageClass(descriptor).HasField
        self._descriptor = descriptor

    @cached_property
    def _fields(self) -> tuple[_Field, ...]:
        # Not in the constructor: types may be recursive.
        found = []
        for field in self._descriptor.fields:
            of = field.message_type
            nested = _fields_of(of) if of is not None and _has_required(of, frozenset()) else None
            required = _is_required(field)
            if required or nested is not None:
                has_presence, is_repeated = field.has_presence, field.is_repeated
                found.append(_Field(field.name, required, has_presence, is_repeated, nested))
        return tuple(found)

    def first_missing(self, message: Any) -> str | None:
        """The path of the first field that is not set, or None."""
        for name, is_required, has_presence, is_repeated, nested in self._fields:
            if has_presence:
                if not self._has(message, name):
                    if is_required:
                        return name
                    continue
            elif is_required and not getattr(message, name):
                return name
            if nested is None:
                continue
            value = getattr(message, name)
            if is_repeated:
                for index, one in enumerate(value):
                    if (missing := nested.first_missing(one)) is not None:
                        return f"{name}[{index}].{missing}"
            elif (missing := nested.first_missing(value)) is not None:
                return f"{name}.{missing}"
        return None


_fields_of = cache(_CheckedFields)


def _is_required(field: FieldDescriptor) -> bool:
    extension: Any = field_behavior_pb2.field_behavior  # its stub does not say it is an extension
    behaviors: Any = field.GetOptions().Extensions[extension]
    return field_behavior_pb2.REQUIRED in behaviors


def _has_required(descriptor: Descriptor, seen: frozenset[str]) -> bool:
    """Whether a message type has a REQUIRED field at any depth (types may be recursive)."""
    if descriptor.full_name in seen:
        return False
    seen = seen | {descriptor.full_name}
    return any(
        _is_required(field)
        or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in descriptor.fields
    )
