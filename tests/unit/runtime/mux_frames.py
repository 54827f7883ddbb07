"""Frames for a call table, and what it says has happened, to be compared."""

from __future__ import annotations

from typing import Any, NamedTuple

from google.rpc import status_pb2

from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.mux import calls
from gymmesh_runtime.wire.mux.calls import OutgoingCall
from gymmesh_runtime.wire.mux.frames import Begin, Frame, pack, unpack
from gymmesh_runtime.wire.mux.table import CallTable, TableLimits

#: Bounds that a few calls reach.
SMALL = TableLimits(calls=4, message_bytes=100, assembly_bytes=150, call_bytes=0)


class Named(OutgoingCall):
    """A call of ours, by a name."""

    name: Any = None


def opened(one: CallTable, name: Any, *, streaming: bool = False, credit: int = 0) -> int:
    """Begins a call of ours; returns its number."""
    return one.open(Named(credit=credit if streaming else None, name=name))


def begin(number: int, payload: bytes = b"q", *, more: bool = False, credit: int = 0) -> Frame:
    """A call of theirs."""
    return Begin(number, "s/M", 500, {"k": "v"}, payload, more, credit)


class Arrived(NamedTuple):
    name: Any
    payload: bytes


class Ended(NamedTuple):
    name: Any
    status: status_pb2.Status | None
    payload: bytes


class NoRoom(NamedTuple):
    name: Any
    error: MeshError


def happened_in(one: CallTable, *frames: mux_pb2.Frame) -> list[Any]:
    """Gives frames as they arrive; returns what happened. Raises Violation."""
    events = [one.receive(frame) for frame in frames]
    return [_comparable(event) for event in events if event is not None]


def _comparable(event: calls.TableEvent) -> Any:
    """An event about a call of ours by the call's name."""
    match event:
        case calls.Arrived(Named() as call, payload):
            return Arrived(call.name, payload)
        case calls.CallEnded(Named() as call, status):
            answer = call.response if status is None else None
            return Ended(call.name, status, answer or b"")
        case calls.NoRoom(Named() as call, error):
            return NoRoom(call.name, error)
    return event


def wire(frame: Frame) -> list[mux_pb2.Frame]:
    """A frame as it arrives."""
    return list(unpack(pack([frame])).frames)


def give(one: CallTable, *sent: Frame) -> list[Any]:
    """Gives frames to a table; returns what happened."""
    return happened_in(one, *(frame for out in sent for frame in wire(out)))
