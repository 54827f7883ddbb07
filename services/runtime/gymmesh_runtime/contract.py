"""What the contract's descriptors say, in the form in which the runtime needs it.

Methods, their message classes and REQUIRED fields are read from the generated
descriptors, so that nothing is written down twice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.api import field_behavior_pb2
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError

#: The contract's version. The minor part grows with every addition.
CONTRACT_VERSION: Final = "1.0"

_Check = Callable[[Any], str | None]
_Presence = Callable[[Any, str], bool]


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """One RPC as the contract defines it."""

    name: str
    full_name: str  # package.Service/Method
    request_class: type[Message]
    response_class: type[Message]
    client_streaming: bool
    server_streaming: bool

    def check(self, request: Any) -> None:
        """Raises REQUIRED_FIELD_MISSING when a REQUIRED field of the request is not set."""
        missing = required_fields(self.request_class)(request)
        if missing is not None:
            raise MeshError(
                errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
                f"{self.full_name} needs the field '{missing}'; set it and call again",
                metadata={"field": missing, "method": self.full_name},
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
    return {
        method.name: MethodSpec(
            name=method.name,
            full_name=f"{service}/{method.name}",
            request_class=message_factory.GetMessageClass(method.input_type),
            response_class=message_factory.GetMessageClass(method.output_type),
            client_streaming=method.client_streaming,
            server_streaming=method.server_streaming,
        )
        for method in descriptor.methods
    }


def required_fields(message_class: type[Message]) -> _Check:
    """Returns a function that names the first REQUIRED field that is not set, or None.

    Fields of sub-messages count when the sub-message is set. A field without
    presence counts as not set when it has its default value.
    """
    return _check_of(message_class.DESCRIPTOR)


@cache
def _check_of(descriptor: Descriptor) -> _Check:
    """Looks at the simple fields in one go, since every call is checked, and at others by steps."""
    plain = [f.name for f in descriptor.fields if _is_plain(f)]
    present = [f.name for f in descriptor.fields if _is_required(f) and _has_bare_presence(f)]
    simple = {*plain, *present}
    has_field = _presence_in(descriptor)
    others = [field for field in descriptor.fields if field.name not in simple]
    steps = [step for field in others if (step := _step(field, has_field))]
    order = {field.name: place for place, field in enumerate(descriptor.fields)}

    def check(message: Any) -> str | None:
        for name in plain:
            if not getattr(message, name):
                return first(message)
        for name in present:
            if not has_field(message, name):
                return first(message)
        for step in steps:
            missing = step(message)
            if missing is not None:
                return first(message)
        return None

    def first(message: Any) -> str:
        """The one that stands first in the contract, when something is missing."""
        missing = [name for name in plain if not getattr(message, name)]
        missing += [name for name in present if not has_field(message, name)]
        missing += [found for step in steps if (found := step(message)) is not None]
        return min(missing, key=lambda path: order[path.partition(".")[0].partition("[")[0]])

    return check


def _presence_in(descriptor: Descriptor) -> _Presence:
    """HasField of the class: a message looks through the names of its fields to find its own."""
    has_field: _Presence = message_factory.GetMessageClass(descriptor).HasField
    return has_field


def _is_plain(field: FieldDescriptor) -> bool:
    """Whether its default value is its absence."""
    return _is_required(field) and not field.is_repeated and not field.has_presence


def _has_bare_presence(field: FieldDescriptor) -> bool:
    """Whether it has presence, and nothing in it is to be looked at."""
    if field.is_repeated or not field.has_presence:
        return False
    nested = field.message_type
    return nested is None or not _has_required(nested, frozenset())


def _step(field: FieldDescriptor, has_field: _Presence) -> _Check | None:
    name = field.name
    required = _is_required(field)
    nested = field.message_type
    if nested is not None and not _has_required(nested, frozenset()):
        nested = None
    if field.is_repeated:
        return _repeated_step(name, required, nested)
    return None if nested is None else _message_step(name, required, nested, has_field)


def _repeated_step(name: str, required: bool, nested: Descriptor | None) -> _Check | None:
    if nested is None:
        if not required:
            return None
        return lambda message: None if getattr(message, name) else name

    def step(message: Any) -> str | None:
        elements = getattr(message, name)
        if required and not elements:
            return name
        check = _check_of(nested)
        for index, element in enumerate(elements):
            missing = check(element)
            if missing is not None:
                return f"{name}[{index}].{missing}"
        return None

    return step


def _message_step(name: str, required: bool, nested: Descriptor, has_field: _Presence) -> _Check:
    def step(message: Any) -> str | None:
        if not has_field(message, name):
            return name if required else None
        missing = _check_of(nested)(getattr(message, name))
        return None if missing is None else f"{name}.{missing}"

    return step


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
