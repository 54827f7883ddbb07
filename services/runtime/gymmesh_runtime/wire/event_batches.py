"""Collect's batches of events, whose events stay bytes.

An agent keeps events as bytes and need not read them again to send them. A collector reads each on
its own: the parts of a message that is read as a whole share one piece of memory, which lives as
long as any of them, and a batch has events of many attempts. Plain CollectResponse messages would
cost a mesh 10 to 20 µs of CPU a rollout more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gymmesh.agent.v1 import agent_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "gymmesh.event_batches"


class EventBatch(Protocol):
    """A CollectEvents whose events are bytes.

    Attributes:
        cursor: that of the last event.
        events: the events, each a RolloutEvent.
    """

    cursor: int
    events: Sequence[bytes]


def pack_events(events: Sequence[bytes], cursor: int) -> bytes:
    """The bytes of the CollectResponse that carries these events."""
    response = _Response()
    response.events.cursor = cursor
    response.events.events.extend(events)
    return cast("bytes", response.SerializeToString())


def read_response(data: bytes) -> agent_pb2.CollectResponse | EventBatch:
    """A CollectResponse from its bytes; an EventBatch where it carries events.

    Raises:
        DecodeError: it is neither. The events themselves are not looked at.
    """
    response = _Response.FromString(data)
    if response.WhichOneof("message") == "events":
        return cast("EventBatch", response.events)
    return agent_pb2.CollectResponse.FromString(data)


def _response_class() -> Any:
    """CollectResponse with other types: its events are an EventBatch, the rest is bytes.

    On the wire, a message in a field and bytes look the same.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="gymmesh/event_batches.proto", package=_PACKAGE, syntax="proto3"
    )
    batch = file.message_type.add(name="EventBatch")
    for field in agent_pb2.CollectEvents.DESCRIPTOR.fields:
        kind = _Field.TYPE_BYTES if field.message_type is not None else field.type
        label = _Field.LABEL_REPEATED if field.is_repeated else _Field.LABEL_OPTIONAL
        batch.field.add(name=field.name, number=field.number, type=kind, label=label)
    response = file.message_type.add(name="Response")
    response.oneof_decl.add(name="message")
    for field in agent_pb2.CollectResponse.DESCRIPTOR.fields:
        added = response.field.add(
            name=field.name, number=field.number, type=_Field.TYPE_BYTES, oneof_index=0
        )
        if field.name == "events":
            added.type, added.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.EventBatch"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Response"))


_Response: Final = _response_class()
