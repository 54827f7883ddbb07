"""The calls of one link: a pure state machine, the same for both sides.

It is given every frame that arrives and says what happened; it sends nothing
and knows no clock. Our calls and theirs, and what each may still be sent:

    ours    OPEN       message and chunks, end                 -> gone
            CANCELLED  anything that was on its way, then end  -> gone
    theirs  RECEIVING  chunks of the request, credit, cancel   -> SERVING
            SERVING    credit, cancel                          -> gone with our end
            REFUSED    chunks that were on their way           -> gone with the last

Any other frame breaks the protocol and raises ``Violation``: the link ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import MIB
from gymmesh_runtime.wire.mux.frames import MAX_MESSAGE, MAX_PAYLOAD_BYTES

_MAX_CREDIT: Final = 2**31
_NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


class Violation(Exception):
    """The peer broke the protocol; the message names the rule."""


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bounds of one link. Calls are counted for each side; bytes are those received."""

    calls: int = 32_768
    message_bytes: int = MAX_MESSAGE
    assembly_bytes: int = 256 * MIB  # of all messages whose last chunk is still missing


class Arrived(NamedTuple):
    """A message of a stream of ours."""

    sink: Any
    payload: bytes


class Ended(NamedTuple):
    """A call of ours ended; ``payload`` is a unary call's response when it ended well."""

    sink: Any
    status: status_pb2.Status | None
    payload: bytes


class Failed(NamedTuple):
    """A call of ours was given up, since there is no room for its response; to be cancelled."""

    number: int
    sink: Any
    error: MeshError


class Receiving(NamedTuple):
    """A call of theirs began, and chunks of its request are still to come."""

    call: Theirs


class Began(NamedTuple):
    """A call of theirs is to be served."""

    call: Theirs
    payload: bytes


class Refused(NamedTuple):
    """A call of theirs that is not served; it is to be ended with the error."""

    number: int
    error: MeshError


class Dropped(NamedTuple):
    """A call of theirs was cancelled; an end is still to be sent."""

    call: Theirs


class Credited(NamedTuple):
    """A call of theirs may be sent more; its ``credit`` is the new sum."""

    call: Theirs


class Leaving(NamedTuple):
    """The peer takes no new calls."""

    reason: str


Event: TypeAlias = (
    Arrived | Ended | Failed | Receiving | Began | Refused | Dropped | Credited | Leaving
)


class Ours:
    """A call that this side made."""

    __slots__ = ("answer", "granted", "number", "parts", "parts_bytes", "sink", "streaming")

    def __init__(self, number: int, sink: Any, streaming: bool, granted: int) -> None:
        self.number = number
        self.sink = sink
        self.streaming = streaming
        self.granted = granted  # messages that may still come
        self.answer: bytes | None = None
        self.parts: list[bytes] | None = None  # chunks of the message under way
        self.parts_bytes = 0


class Theirs:
    """A call that the other side made. ``sink`` belongs to whoever serves it."""

    __slots__ = ("credit", "metadata", "method", "number", "parts", "parts_bytes", "sink",
                 "timeout_ms")  # fmt: skip

    def __init__(self, number: int, begin: mux_pb2.Begin) -> None:
        self.number = number
        self.method = begin.method
        self.timeout_ms = begin.timeout_ms
        metadata = begin.metadata
        self.metadata: Mapping[str, str] = dict(metadata) if metadata else _NO_METADATA
        self.credit = begin.credit  # messages that may still be sent
        self.sink: Any = None
        self.parts: list[bytes] | None = None  # None: the request is complete
        self.parts_bytes = 0


class CallTable:
    """The calls in flight on one link.

    ``opener`` says whether this side opened the stream, and so has the odd numbers.
    """

    def __init__(self, *, opener: bool, limits: TableLimits | None = None) -> None:
        self._limits = limits or TableLimits()
        self._next = 1 if opener else 2
        self._parity = self._next % 2
        self._ours: dict[int, Ours] = {}
        self._cancelled: set[int] = set()
        self._theirs: dict[int, Theirs] = {}
        self._refused: set[int] = set()
        #: Bytes of messages whose last chunk is still missing.
        self.assembling = 0
        self.leaving = False  # this side takes no new calls
        self.peer_leaving = False

    # ---- our calls ------------------------------------------------------------------

    @property
    def ours(self) -> int:
        """Our calls that have not ended, without the cancelled ones."""
        return len(self._ours)

    def open(self, sink: Any, *, streaming: bool = False, credit: int = 0) -> int:
        """Begins a call of ours and returns its number. ``sink`` comes back with its events.

        Raises QUEUE_FULL, also when the peer does not end what was cancelled, and
        DRAINING when it takes no new calls.
        """
        if self.peer_leaving:
            raise draining()
        if len(self._ours) + len(self._cancelled) >= self._limits.calls:
            raise _queue_full(self._limits.calls)
        number = self._next
        self._next += 2
        self._ours[number] = Ours(number, sink, streaming, credit)
        return number

    def cancel(self, number: int) -> bool:
        """Gives a call of ours up; returns whether the peer must be told (it had not ended)."""
        call = self._ours.pop(number, None)
        if call is None:
            return False
        self.assembling -= call.parts_bytes
        self._cancelled.add(number)
        return True

    def grant(self, number: int, messages: int) -> bool:
        """Allows more messages; returns whether the peer must be told."""
        call = self._ours.get(number)
        if call is None:
            return False
        call.granted += messages
        return True

    def give_up_all(self) -> list[Any]:
        """Forgets our calls, for a link that broke; returns their sinks."""
        sinks = [call.sink for call in self._ours.values()]
        self._ours.clear()
        self._cancelled.clear()
        return sinks

    # ---- their calls ----------------------------------------------------------------

    @property
    def theirs(self) -> int:
        """Calls of theirs that are not ended."""
        return len(self._theirs)

    def served(self) -> Iterator[Theirs]:
        """Their calls."""
        return iter(self._theirs.values())

    def end(self, number: int) -> bool:
        """Ends a call of theirs; returns whether it was there, so that `end` is to be sent."""
        call = self._theirs.pop(number, None)
        if call is None:
            return False
        if call.parts is not None:
            self.assembling -= call.parts_bytes
            self._refused.add(number)
        return True

    # ---- what arrives ---------------------------------------------------------------

    def receive(self, frame: mux_pb2.Frame) -> Event | None:
        """Takes a frame; returns what happened, None when that is nothing yet. Raises Violation."""
        number, kind = frame.call, frame.WhichOneof("kind")
        if number % 2 == self._parity and number:
            call = self._ours.get(number)
            if call is None:
                self._receive_late(number, kind)
                return None
            if kind == "message":
                return self._message(call, frame.message)
            if kind == "end":
                return self._end(number, call, frame.end)
            if kind == "chunk":
                return self._chunk(call, frame.chunk)
            raise Violation(f"'{kind}' came for a call that its receiver had made")
        if kind == "begin":
            return self._begin(number, frame.begin)
        if kind == "go_away":
            self.peer_leaving = True
            return Leaving(frame.go_away.reason)
        return self._receive_for_theirs(number, kind, frame)

    def _receive_late(self, number: int, kind: str | None) -> None:
        if number in self._cancelled and kind in ("message", "chunk", "end"):
            if kind == "end":
                self._cancelled.discard(number)
            return
        raise Violation(f"'{kind}' came for the call {number}, which is not open")

    def _message(self, call: Ours, message: mux_pb2.Message) -> Arrived | Failed | None:
        if call.parts is not None:
            raise Violation("a message came before the last chunk of the one before")
        if call.streaming:
            if call.granted == 0:
                raise Violation("a message came without credit")
            call.granted -= 1
        elif call.answer is not None:
            raise Violation("a second response came for a unary call")
        payload = _checked(message.payload)
        if message.more:
            call.parts = []
            return self._gather(call, payload)
        return self._whole(call, payload)

    def _chunk(self, call: Ours, chunk: mux_pb2.Chunk) -> Arrived | Failed | None:
        if call.parts is None:
            raise Violation("a chunk came for a message that was complete")
        failed = self._gather(call, _checked(chunk.payload))
        if failed is not None or not chunk.last:
            return failed
        return self._whole(call, self._join(call))

    def _gather(self, call: Ours, payload: bytes) -> Failed | None:
        problem = self._keep(call, payload)
        if problem is None:
            return None
        self.cancel(call.number)
        return Failed(call.number, call.sink, problem)

    def _whole(self, call: Ours, payload: bytes) -> Arrived | None:
        if call.streaming:
            return Arrived(call.sink, payload)
        call.answer = payload
        return None

    def _end(self, number: int, call: Ours, end: mux_pb2.End) -> Ended:
        status = end.status if end.HasField("status") and end.status.code else None
        if status is None:
            if call.parts is not None:
                raise Violation("a call ended well before the last chunk of a message")
            if not call.streaming and call.answer is None:
                raise Violation("a unary call ended well without a response")
        del self._ours[number]
        self.assembling -= call.parts_bytes
        return Ended(call.sink, status, call.answer or b"")

    def _begin(self, number: int, begin: mux_pb2.Begin) -> Began | Receiving | Refused:
        if number == 0 or number in self._theirs or number in self._refused:
            raise Violation(f"the call number {number} was used again")
        payload = _checked(begin.payload)
        error = self._refusal()
        if error is not None:
            if begin.more:
                self._refuse(number)
            return Refused(number, error)
        call = self._theirs[number] = Theirs(number, begin)
        if not begin.more:
            return Began(call, payload)
        call.parts = []
        return self._receive_part(call, payload, last=False) or Receiving(call)

    def _refusal(self) -> MeshError | None:
        if self.leaving:
            return draining()
        if len(self._theirs) >= self._limits.calls:
            return _queue_full(self._limits.calls)
        return None

    def _refuse(self, number: int) -> None:
        if len(self._refused) >= self._limits.calls:
            raise Violation("too many calls were refused whose chunks did not come")
        self._refused.add(number)

    def _receive_for_theirs(
        self, number: int, kind: str | None, frame: mux_pb2.Frame
    ) -> Event | None:
        call = self._theirs.get(number)
        if kind == "chunk":
            return self._request_chunk(number, call, frame.chunk)
        if kind == "cancel":
            if call is None:
                return None  # it crossed our end
            if call.parts is not None:  # its chunks end here: none are to be let pass
                self.assembling -= call.parts_bytes
                call.parts, call.parts_bytes = None, 0
            return Dropped(call)
        if kind == "credit":
            return None if call is None else _credit(call, frame.credit.messages)
        raise Violation(f"'{kind}' came for the call {number}, which the sender had made")

    def _request_chunk(
        self, number: int, call: Theirs | None, chunk: mux_pb2.Chunk
    ) -> Began | Refused | None:
        payload = _checked(chunk.payload)
        if call is None:
            if number not in self._refused:
                raise Violation(f"a chunk came for the call {number}, which is not open")
            if chunk.last:
                self._refused.discard(number)
            return None
        if call.parts is None:
            raise Violation("a chunk came for a request that was complete")
        return self._receive_part(call, payload, last=chunk.last)

    def _receive_part(self, call: Theirs, payload: bytes, *, last: bool) -> Began | Refused | None:
        problem = self._keep(call, payload)
        if problem is not None:
            self.assembling -= call.parts_bytes
            del self._theirs[call.number]
            if not last:
                self._refuse(call.number)
            return Refused(call.number, problem)
        return Began(call, self._join(call)) if last else None

    # ---- messages in chunks ---------------------------------------------------------

    def _keep(self, call: Ours | Theirs, payload: bytes) -> MeshError | None:
        """Keeps a chunk; returns what is wrong when there is no room for it."""
        size = len(payload)
        if call.parts_bytes + size > self._limits.message_bytes:
            return too_large(self._limits.message_bytes)
        if self.assembling + size > self._limits.assembly_bytes:
            return MeshError(
                errors_pb2.ERROR_REASON_QUEUE_FULL,
                "too many large messages are under way on this connection",
                metadata={"queue": "mux", "limit": str(self._limits.assembly_bytes)},
            )
        assert call.parts is not None  # it is being received
        call.parts.append(payload)
        call.parts_bytes += size
        self.assembling += size
        return None

    def _join(self, call: Ours | Theirs) -> bytes:
        assert call.parts is not None  # it was being received
        whole = b"".join(call.parts)
        self.assembling -= call.parts_bytes
        call.parts, call.parts_bytes = None, 0
        return whole


def _checked(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Violation(f"a frame had more than {MAX_PAYLOAD_BYTES} bytes of payload")
    return payload


def _credit(call: Theirs, messages: int) -> Credited:
    call.credit += messages
    if call.credit > _MAX_CREDIT:
        raise Violation(f"more than {_MAX_CREDIT} messages of credit were granted")
    return Credited(call)


def draining() -> MeshError:
    """The error of a call to a peer that takes no new ones."""
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "the server is draining and takes no new calls; call another instance",
    )


def too_large(limit: int) -> MeshError:
    """The error of a message over the limit, in bytes."""
    return MeshError(
        errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE,
        f"the message is larger than the {limit} bytes that a call may carry",
        metadata={"limit_bytes": str(limit)},
    )


def _queue_full(limit: int) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"{limit} calls are in flight on this connection already; try again later",
        metadata={"queue": "mux", "limit": str(limit)},
    )
