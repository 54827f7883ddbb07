"""What the contract's descriptors say, in the form in which the runtime needs it.

Methods, their message classes and REQUIRED fields are read from the generated
descriptors, so that nothing is written down twice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.api import field_behavior_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor import (
    Descriptor,
    FieldDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)
from google.protobuf.message import DecodeError, Message

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

#: The contract's version. The minor part grows with every addition.
CONTRACT_VERSION: Final = "1.0"

_Check = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One RPC as the contract defines it."""

    name: str
    full_name: str  # package.Service/Method
    request_class: type[Message]
    response_class: type[Message]
    client_streaming: bool
    server_streaming: bool
    # How messages become bytes and come out of them, at hand: their classes look names up.
    pack_request: Callable[[Any], bytes]
    read_request: Callable[[bytes], Any]
    pack_response: Callable[[Any], bytes]
    read_response: Callable[[bytes], Any]

    def check(self, request: Any) -> None:
        """Raises REQUIRED_FIELD_MISSING when a REQUIRED field of the request is not set."""
        missing = required_fields(self.request_class)(request)
        if missing is not None:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
                f"{self.full_name} needs the field '{missing}'; set it and call again",
                metadata={"field": missing, "method": self.full_name},
            )

    def request_of(self, data: bytes) -> Any:
        """Decodes a request. Raises FIELD_INVALID when the bytes are none of this method."""
        try:
            return self.read_request(data)
        except DecodeError:
            raise self.undecodable_request() from None

    def response_of(self, data: bytes, address: str) -> Any:
        """Decodes what the peer at `address` answered. Raises CONTRACT_VIOLATED."""
        try:
            return self.read_response(data)
        except DecodeError:
            raise self.undecodable_response(address) from None

    def undecodable_request(self) -> MeshError:
        """The error of a caller whose bytes are no request of this method."""
        name = self.request_class.DESCRIPTOR.full_name
        return MeshError(
            errors_pb2.ERROR_REASON_FIELD_INVALID,
            f"the request of {self.full_name} cannot be decoded as {name}",
            metadata={"field": "", "method": self.full_name},
        )

    def undecodable_response(self, address: str) -> MeshError:
        """The error of a peer whose bytes are no response of this method."""
        name = self.response_class.DESCRIPTOR.full_name
        return MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
            f"{address}: the response of {self.full_name} cannot be decoded as {name}",
            metadata={"rule": "response", "method": self.full_name, "address": address},
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
        pack_request=request.SerializeToString,
        read_request=request.FromString,
        pack_response=response.SerializeToString,
        read_response=response.FromString,
    )


def required_fields(message_class: type[Message]) -> _Check:
    """Returns a function that names the first REQUIRED field that is not set, or None.

    Fields of sub-messages count when the sub-message is set. A field without
    presence counts as not set when it has its default value.
    """
    return _check_of(message_class.DESCRIPTOR)


@cache
def _check_of(descriptor: Descriptor) -> _Check:
    """One function for the type, and one for each type in it that has REQUIRED fields.

    They are written as source and compiled: every call is checked, and to look up what is to be
    checked would be as dear as the check.
    """
    types = _checked_types(descriptor, {})
    scope: dict[str, Any] = {"first_in": _first_in}
    for number, one in enumerate(types.values()):
        # Of the class: a message looks through the names of its fields to find its own.
        scope[f"has_{number}"] = message_factory.GetMessageClass(one).HasField
    numbers = {name: number for number, name in enumerate(types)}
    lines = [line for one in types.values() for line in _check_lines(one, numbers)]
    code = compile("\n".join(lines), f"<REQUIRED fields of {descriptor.full_name}>", "exec")
    exec(code, scope)  # noqa: S102  # our own text, made of the contract's names
    check: _Check = scope["check_0"]
    return check


def _checked_types(descriptor: Descriptor, known: dict[str, Descriptor]) -> dict[str, Descriptor]:
    """The type and those in it that have REQUIRED fields, by name; it stands first."""
    known[descriptor.full_name] = descriptor
    for field in descriptor.fields:
        nested = _checked_type(field)
        if nested is not None and nested.full_name not in known:
            _checked_types(nested, known)
    return known


def _checked_type(field: FieldDescriptor) -> Descriptor | None:
    """The type of the field's messages, where there is something to be looked at in them."""
    nested = field.message_type
    return nested if nested is not None and _has_required(nested, frozenset()) else None


def _check_lines(descriptor: Descriptor, numbers: Mapping[str, int]) -> list[str]:
    """The source of the check of one type, `numbers` being those of the functions."""
    number = numbers[descriptor.full_name]
    lines = [f"def check_{number}(message):"]
    for field in descriptor.fields:
        lines += _field_lines(field, f"has_{number}(message, {field.name!r})", numbers)
    return [*lines, "    return None"]


def _field_lines(field: FieldDescriptor, is_present: str, numbers: Mapping[str, int]) -> list[str]:
    """Whether the field is set, if it has to be, and what is missing in it."""
    name, lines = field.name, []
    value = f"message.{name}"
    if _is_required(field):
        lines.append(f"    if not {is_present if field.has_presence else value}: return {name!r}")
    nested = _checked_type(field)
    if nested is None:
        return lines
    check = f"check_{numbers[nested.full_name]}"
    if field.is_repeated:
        lines.append(f"    missing = first_in({value}, {name!r}, {check})")
        lines.append("    if missing is not None: return missing")
    else:
        where = "" if _is_required(field) else f"{is_present} and "
        lines.append(f"    if {where}(missing := {check}({value})) is not None:")
        lines.append(f"        return {name + '.'!r} + missing")
    return lines


def _first_in(messages: Iterable[Any], name: str, check: _Check) -> str | None:
    """The first field that is missing in one of a field's messages."""
    for index, message in enumerate(messages):
        missing = check(message)
        if missing is not None:
            return f"{name}[{index}].{missing}"
    return None


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
