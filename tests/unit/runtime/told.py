"""Calls for a call table, and what it tells as events that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.rpc import status_pb2

from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.mux.assembly import Parts
from gymmesh_runtime.wire.mux.frames import BEGIN, Frame, pack, unpack
from gymmesh_runtime.wire.mux.table import CallTable, Listener, TableLimits, Theirs

#: Bounds that a few calls reach.
SMALL = TableLimits(calls=4, message_bytes=100, assembly_bytes=150, call_bytes=0)


class Mine:
    """A call of ours, as a table keeps it."""

    def __init__(self, sink: Any, granted: int | None) -> None:
        self.sink = sink
        self.granted = granted
        self.answer: bytes | None = None
        self.parts: Parts | None = None


def opened(one: CallTable, sink: Any, *, streaming: bool = False, credit: int = 0) -> int:
    """Begins a call of ours; returns its number."""
    return one.open(Mine(sink, credit if streaming else None))


def begin(number: int, payload: bytes = b"q", *, more: bool = False, credit: int = 0) -> Frame:
    """A call of theirs."""
    return (BEGIN, number, "s/M", 500, {"k": "v"}, payload, more, credit)


class Arrived(NamedTuple):
    sink: Any
    payload: bytes


class Ended(NamedTuple):
    sink: Any
    status: status_pb2.Status | None
    payload: bytes


class Failed(NamedTuple):
    number: int
    sink: Any
    error: MeshError


class Receiving(NamedTuple):
    call: Theirs


class Began(NamedTuple):
    call: Theirs
    payload: bytes


class Refused(NamedTuple):
    number: int
    error: MeshError


class Dropped(NamedTuple):
    call: Theirs


class Credited(NamedTuple):
    call: Theirs


class Leaving(NamedTuple):
    reason: str


def happened_in(one: CallTable, *frames: mux_pb2.Frame) -> list[Any]:
    """Gives frames as they arrive; returns what the table told. Raises Violation."""
    events: list[Any] = []
    give_batch(one, mux_pb2.ExchangeRequest(frames=frames), events.append)
    return events


def give_batch(
    one: CallTable, batch: mux_pb2.ExchangeRequest, tell: Callable[[Any], object]
) -> None:
    """Gives a batch; ``tell`` gets what the table tells. Raises Violation."""

    def told(kind: Callable[..., Any]) -> Callable[..., object]:
        return lambda *said: tell(kind(*said))

    listener = Listener(
        arrived=told(Arrived),
        answered=lambda sink, payload: tell(Ended(sink, None, payload)),
        ended=lambda sink, status: tell(Ended(sink, status, b"")),
        failed=told(Failed),
        receiving=told(Receiving),
        began=told(Began),
        refused=told(Refused),
        dropped=told(Dropped),
        credited=told(Credited),
        leaving=told(Leaving),
    )
    one.receive(batch, listener)


def wire(frame: Frame) -> list[mux_pb2.Frame]:
    """A frame as it arrives."""
    return list(unpack(pack([frame])).frames)


def give(one: CallTable, *sent: Frame) -> list[Any]:
    """Gives frames to a table; returns what happened."""
    return happened_in(one, *(frame for out in sent for frame in wire(out)))
