"""What the two sides of Collect send, but that events and requests stay bytes.

Batches are made of what is bytes already, without reading it into messages only to write those
again. And a message that is read in one go lies in one piece of memory, which stays for as long as
anyone holds any part of it. A batch has the events of many attempts, and most of them are held
while their attempt goes on: so each is read on its own, which costs less than to copy it out of the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor

from gymmesh.agent.v1 import agent_pb2

_PACKAGE: Final = "gymmesh.packed"
_Field = descriptor_pb2.FieldDescriptorProto


class EventBatch(Protocol):
    """A CollectEvents whose events are bytes."""

    @property
    def cursor(self) -> int:
        """Of the last event."""

    @property
    def events(self) -> Sequence[bytes]:
        """The events, each a RolloutEvent."""


def _add_twin(file: descriptor_pb2.FileDescriptorProto, of: Descriptor, twins: set[str]) -> None:
    """Adds a message with the fields of another; those that are messages are bytes.

    The wire has the two alike. A field of a type in `twins` has the twin of that type.
    """
    twin = file.message_type.add(name=of.name)
    for oneof in of.oneofs:
        twin.oneof_decl.add(name=oneof.name)
    for field in of.fields:
        added = twin.field.add(name=field.name, number=field.number, type=field.type)
        added.label = _Field.LABEL_REPEATED if field.is_repeated else _Field.LABEL_OPTIONAL
        if field.containing_oneof is not None:
            added.oneof_index = field.containing_oneof.index
        if field.message_type is None:
            continue
        if field.message_type.name in twins:
            added.type_name = f".{_PACKAGE}.{field.message_type.name}"
        else:
            added.type = _Field.TYPE_BYTES


def _twins(*chain: Descriptor) -> tuple[Any, ...]:
    """The twins of messages, each of which has fields of the one before it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="gymmesh/packed.proto", package=_PACKAGE, syntax="proto3"
    )
    twins: set[str] = set()
    for one in chain:
        _add_twin(file, one, twins)
        twins.add(one.name)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = [pool.FindMessageTypeByName(f"{_PACKAGE}.{one.name}") for one in chain]
    return tuple(map(message_factory.GetMessageClass, made))


#: The twins of CollectEvents, an EventBatch, and of CollectResponse, which has one.
PackedEvents, PackedResponse = _twins(
    agent_pb2.CollectEvents.DESCRIPTOR, agent_pb2.CollectResponse.DESCRIPTOR
)

#: The twin of CollectRequest, whose starts have the bytes of what is asked for.
_, _, PackedRequest = _twins(
    agent_pb2.CollectStart.DESCRIPTOR,
    agent_pb2.CollectStarts.DESCRIPTOR,
    agent_pb2.CollectRequest.DESCRIPTOR,
)
