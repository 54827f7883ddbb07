"""Frames of the mux: what is sent, how it is packed, and its limits.

A frame to be sent is a plain tuple until its batch leaves: building a batch in
one go costs a third of what serialising each frame by itself does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.wire.batch import KIB, MIB
from gymmesh_runtime.wire.options import MAX_MESSAGE_BYTES

EXCHANGE: Final = "gymmesh.mux.v1.MuxService/Exchange"
#: The key in a server's first metadata that says that it takes frames. One without it may
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

BEGIN: Final = 1  # method, timeout_ms, metadata, payload, more, credit
MESSAGE: Final = 2  # payload, more
CHUNK: Final = 3  # payload, last
END: Final = 4  # status or None
ANSWER: Final = 5  # payload: a whole message and OK, two frames
CANCEL: Final = 6
CREDIT: Final = 7  # messages
GO_AWAY: Final = 8  # reason

#: The kind, the call's number, and what the kind above lists. Payloads are bytes, and those of
#: chunks may be views: what waits in line for long is not copied before its turn.
Frame: TypeAlias = tuple[Any, ...]

#: What is added to a frame to make it the end of a call that went well: less than half of what
#: the sub-message costs to set.
_END: Final = mux_pb2.Frame(end=mux_pb2.End()).SerializeToString()
_merge = mux_pb2.Frame.MergeFromString


def begin(
    call: int,
    method: str,
    timeout_ms: int,
    metadata: Mapping[str, str],
    payload: bytes,
    credit: int,
) -> list[Frame]:
    """The frames that begin a call: one, or several when the request is large."""
    first, *rest = _pieces(payload)
    return [
        (BEGIN, call, method, timeout_ms, metadata, bytes(first), bool(rest), credit),
        *_chunks(call, rest),
    ]


def message(call: int, payload: bytes) -> list[Frame]:
    """The frames of a response message."""
    first, *rest = _pieces(payload)
    return [(MESSAGE, call, bytes(first), bool(rest)), *_chunks(call, rest)]


def answer(call: int, payload: bytes) -> list[Frame]:
    """The frames of a unary call's response and of its end."""
    if len(payload) <= CHUNK_BYTES:
        return [(ANSWER, call, payload)]
    return [*message(call, payload), (END, call, None)]


def _pieces(payload: bytes) -> list[memoryview]:
    view = memoryview(payload)
    return [view[at : at + CHUNK_BYTES] for at in range(0, len(payload) or 1, CHUNK_BYTES)]


def _chunks(call: int, pieces: list[memoryview]) -> list[Frame]:
    last = len(pieces) - 1
    return [(CHUNK, call, piece, index == last) for index, piece in enumerate(pieces)]


def size_of(frame: Frame) -> int:
    """How much a frame takes in the queue, in bytes."""
    kind = frame[0]
    if kind == BEGIN:
        return FRAME_BYTES + len(frame[5])
    if kind in (MESSAGE, CHUNK, ANSWER):
        return FRAME_BYTES + len(frame[2])
    return FRAME_BYTES


def pack(frames: Sequence[Frame]) -> bytes:
    """Serialises a batch. ExchangeRequest and ExchangeResponse look the same on the wire."""
    batch = mux_pb2.ExchangeRequest()
    add = batch.frames.add
    for frame in frames:
        out = add()
        out.call = frame[1]
        if frame[0] == ANSWER:
            out.message.payload = frame[2]
            out = add()
            out.call = frame[1]
            _merge(out, _END)
        else:
            _pack_one(out, frame)
    return batch.SerializeToString()


def _pack_begin(out: mux_pb2.Begin, frame: Frame) -> None:
    _, _, out.method, out.timeout_ms, metadata, payload, more, credit = frame
    out.payload = payload
    if metadata:
        out.metadata.update(metadata)
    if more:
        out.more = True
    if credit:
        out.credit = credit


def _pack_one(out: mux_pb2.Frame, frame: Frame) -> None:
    kind = frame[0]
    if kind == BEGIN:
        _pack_begin(out.begin, frame)
    elif kind == MESSAGE:
        out.message.payload = frame[2]
        if frame[3]:
            out.message.more = True
        else:
            out.message.SetInParent()
    elif kind == CHUNK:
        out.chunk.payload = bytes(frame[2])
        out.chunk.last = frame[3]
    elif kind == END:
        status: status_pb2.Status | None = frame[2]
        if status is None:
            _merge(out, _END)
        else:
            out.end.status.CopyFrom(status)
    elif kind == CREDIT:
        out.credit.messages = frame[2]
    elif kind == CANCEL:
        out.cancel.SetInParent()
    else:
        out.go_away.reason = frame[2]


def unpack(data: bytes) -> mux_pb2.ExchangeRequest:
    """Reads a batch. Raises ValueError when it is none."""
    try:
        return mux_pb2.ExchangeRequest.FromString(data)
    except DecodeError as exc:
        raise ValueError("the bytes are not a batch of frames") from exc
