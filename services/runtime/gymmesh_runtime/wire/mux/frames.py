"""Frames of the mux: their types, how they are packed, and their limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.sizes import KIB, MAX_MESSAGE_BYTES, MIB

EXCHANGE: Final = "gymmesh.mux.v1.MuxService/Exchange"
#: The key in a server's first metadata that says that it takes frames. A server without it may
#: do so as well; it is then found out by waiting for its refusal.
OFFERED: Final = "gymmesh-mux"
#: Its value: the version of the frames.
VERSION: Final = "1"

#: What the contract allows in one frame.
MAX_PAYLOAD_BYTES: Final = MIB
#: What we put in one: a small frame waits for one chunk at most, so smaller is better.
CHUNK_BYTES: Final = 256 * KIB
#: A message in its chunks; the same limit as of a plain call.
MAX_MESSAGE: Final = MAX_MESSAGE_BYTES
#: What a frame without its payload takes in the queue, roughly; for the queue's bound.
FRAME_BYTES: Final = 64


class Frame(msgspec.Struct):
    """A frame to send: a part of the call with this number."""

    call: int

    def write(self, batch: mux_pb2.ExchangeRequest) -> None:
        out = batch.frames.add()
        out.call = self.call
        self._fill(out)

    def _fill(self, out: mux_pb2.Frame) -> None:
        raise NotImplementedError


class Begin(Frame):
    """Begins a call: its request, or the first chunk of it."""

    method: str
    timeout_ms: int = 0
    metadata: Mapping[str, str] = NO_METADATA
    payload: bytes = b""
    more: bool = False
    credit: int = 0

    def _fill(self, out: mux_pb2.Frame) -> None:
        begin = out.begin
        begin.method = self.method
        begin.timeout_ms = self.timeout_ms
        begin.payload = self.payload
        if self.metadata:
            begin.metadata.update(self.metadata)
        if self.more:
            begin.more = True
        if self.credit:
            begin.credit = self.credit


class Message(Frame):
    """A response message, or the first chunk of it."""

    payload: bytes
    more: bool = False

    def _fill(self, out: mux_pb2.Frame) -> None:
        out.message.payload = self.payload
        if self.more:
            out.message.more = True


class Chunk(Frame):
    """A further piece of a message. It is a view, which is not copied before the chunk is sent."""

    payload: bytes | memoryview
    last: bool

    def _fill(self, out: mux_pb2.Frame) -> None:
        out.chunk.payload = bytes(self.payload)
        out.chunk.last = self.last


class End(Frame):
    """The end of a call. Without a status the call succeeded."""

    status: status_pb2.Status | None = None

    def _fill(self, out: mux_pb2.Frame) -> None:
        if self.status is None:
            out.end.SetInParent()
        else:
            out.end.status.CopyFrom(self.status)


class UnaryAnswer(Message):
    """The only response of a call and its end: two frames on the wire."""

    def write(self, batch: mux_pb2.ExchangeRequest) -> None:
        Message.write(self, batch)
        out = batch.frames.add()
        out.call = self.call
        out.end.SetInParent()


class Cancel(Frame):
    """The caller cancels the call."""

    def _fill(self, out: mux_pb2.Frame) -> None:
        out.cancel.SetInParent()


class Credit(Frame):
    """Allows more messages of a stream."""

    messages: int

    def _fill(self, out: mux_pb2.Frame) -> None:
        out.credit.messages = self.messages


class GoAway(Frame):
    """Announces that no new calls are accepted. Its number is 0, because it belongs to no call."""

    reason: str

    def _fill(self, out: mux_pb2.Frame) -> None:
        out.go_away.reason = self.reason


def size_of(frame: Frame) -> int:
    """How many bytes a frame uses in the queue."""
    return FRAME_BYTES + len(getattr(frame, "payload", b""))


def begin(
    call: int,
    method: str,
    timeout_ms: int,
    metadata: Mapping[str, str],
    payload: bytes,
    credit: int,
) -> list[Frame]:
    """The frames that begin a call: one frame, or several if the request is large."""
    if len(payload) <= CHUNK_BYTES:
        return [Begin(call, method, timeout_ms, metadata, payload, False, credit)]
    first = payload[:CHUNK_BYTES]
    return [
        Begin(call, method, timeout_ms, metadata, first, True, credit),
        *_chunks_after_first(call, payload),
    ]


def message(call: int, payload: bytes) -> list[Frame]:
    """The frames of a response message."""
    if len(payload) <= CHUNK_BYTES:
        return [Message(call, payload)]
    return [Message(call, payload[:CHUNK_BYTES], True), *_chunks_after_first(call, payload)]


def answer(call: int, payload: bytes) -> list[Frame]:
    """The frames of a unary call's response and end."""
    if len(payload) <= CHUNK_BYTES:
        return [UnaryAnswer(call, payload)]
    return [*message(call, payload), End(call)]


def _chunks_after_first(call: int, payload: bytes) -> list[Frame]:
    view, size = memoryview(payload), len(payload)
    ends = range(2 * CHUNK_BYTES, size + CHUNK_BYTES, CHUNK_BYTES)
    return [Chunk(call, view[end - CHUNK_BYTES : end], end >= size) for end in ends]


def pack(frames: Iterable[Frame]) -> bytes:
    """Serialises a batch. ExchangeRequest and ExchangeResponse look the same on the wire."""
    batch = mux_pb2.ExchangeRequest()
    for frame in frames:
        frame.write(batch)
    return batch.SerializeToString()


def unpack(data: bytes) -> mux_pb2.ExchangeRequest:
    """Reads a batch. Raises ValueError if it is not a batch."""
    try:
        return mux_pb2.ExchangeRequest.FromString(data)
    except DecodeError as exc:
        raise ValueError("the bytes are not a batch of frames") from exc
