"""The calls of one stream: a pure state machine, the same for both sides.

It takes every frame that arrives and returns what happened; it sends nothing and knows no clock.
The calls of both sides, and which frames each may still get:

    outgoing   OPEN       message and chunks, end                 -> gone
               CANCELLED  anything that was on its way, then end  -> gone
    incoming   RECEIVING  chunks of the request, credit, cancel   -> SERVED
               SERVED     credit, cancel                          -> gone with our end
               REFUSED    chunks that were on their way           -> gone with the last

Any other frame breaks the protocol and raises ``Violation``: the stream ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime import errors
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.sizes import KIB, MIB, too_large
from gymmesh_runtime.wire.mux.assembly import Assembly, AssemblyBudget, Chunks
from gymmesh_runtime.wire.mux.calls import (
    Arrived,
    CallEnded,
    CallRefused,
    Cancelled,
    Credited,
    IncomingCall,
    NoRoom,
    OutgoingCall,
    PeerLeaves,
    Received,
    Receiving,
    TableEvent,
)
from gymmesh_runtime.wire.mux.frames import MAX_MESSAGE, MAX_PAYLOAD_BYTES

_MAX_CREDIT: Final = 2**31


class Violation(Exception):
    """The peer broke the protocol; the message names the rule."""


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Limits of one stream. Calls are counted for each side; bytes are those that this side
    receives.
    """

    calls: int = 32_768
    message_bytes: int = MAX_MESSAGE
    metadata_bytes: int = 16 * KIB  # of a call, as plain gRPC has it
    assembly_bytes: int = 256 * MIB  # of all messages whose last chunk is still missing
    assembly_s: float = 60.0  # from the first chunk of a request to its last
    call_bytes: int = 4 * KIB  # what one of them counts for besides its chunks


class CallTable:
    """The calls in flight on one stream.

    ``opener``: whether this side opened the stream, so that its calls have the odd numbers.
    ``budget`` limits the unfinished messages of all streams that share it; None: a separate budget.
    """

    def __init__(
        self,
        *,
        opener: bool,
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
    ) -> None:
        self._limits = limits or TableLimits()
        self._assembly = Assembly(
            self._limits.assembly_bytes, budget or AssemblyBudget(), self._limits.call_bytes
        )
        self._next = 1 if opener else 2
        self._parity = self._next % 2
        self._outgoing: dict[int, OutgoingCall] = {}
        self._cancelled: set[int] = set()
        self._incoming: dict[int, IncomingCall] = {}
        self._refused: set[int] = set()
        self.leaving = False  # this side takes no new calls
        self.peer_leaving = False

    @property
    def outgoing(self) -> int:
        """Our open calls, without the cancelled calls."""
        return len(self._outgoing)

    @property
    def incoming(self) -> int:
        """The open calls of the peer."""
        return len(self._incoming)

    # ---- our calls ------------------------------------------------------------------

    def open(self, call: OutgoingCall) -> int:
        """Begins one of our calls; sets its number, and returns it. Its events refer to the same
        object.

        Raises QUEUE_FULL, also if the peer does not end cancelled calls, and DRAINING if it accepts
        no new calls.
        """
        if self.peer_leaving:
            raise draining()
        if len(self._outgoing) + len(self._cancelled) >= self._limits.calls:
            raise queue_full(self._limits.calls)
        number = call.number = self._next
        self._next += 2
        self._outgoing[number] = call
        return number

    def cancel(self, number: int) -> bool:
        """Cancels one of our calls; returns whether to send `cancel` (the call was open)."""
        call = self._outgoing.pop(number, None)
        if call is None:
            return False
        self._assembly.drop(call)
        self._cancelled.add(number)
        return True

    def grant(self, number: int, messages: int) -> bool:
        """Allows more messages; returns whether to send `credit` (the call has not ended)."""
        call = self._outgoing.get(number)
        if call is None or call.credit is None:
            return False
        call.credit += messages
        return True

    # ---- their calls ----------------------------------------------------------------

    def end(self, number: int) -> bool:
        """Ends a call of the peer; returns whether to send `end` (the call was open)."""
        call = self._incoming.pop(number, None)
        if call is None:
            return False
        if call.chunks is not None:
            self._assembly.drop(call)
            self._refused.add(number)
        return True

    # ---- the end of the stream ------------------------------------------------------

    def close(self) -> tuple[list[OutgoingCall], list[IncomingCall]]:
        """Forgets all calls of a stream that ended; returns our calls and the peer's calls."""
        calls = list(self._outgoing.values()), list(self._incoming.values())
        self._outgoing.clear()
        self._incoming.clear()
        self._cancelled.clear()
        self._assembly.close()
        return calls

    # ---- what arrives ---------------------------------------------------------------

    def receive(self, frame: mux_pb2.Frame) -> TableEvent | None:
        """Applies a frame; returns the event, if there is one. Raises Violation."""
        number, kind = frame.call, frame.WhichOneof("kind")
        if number % 2 == self._parity and number:
            return self._receive_for_ours(number, kind, frame)
        if kind == "begin":
            return self._begin(number, frame.begin)
        if kind == "go_away":
            self.peer_leaving = True
            return PeerLeaves(frame.go_away.reason)
        if kind == "chunk":
            return self._request_chunk(number, frame.chunk)
        call = self._incoming.get(number)
        if kind == "cancel":
            if call is None:  # it crossed our end
                return None
            self._assembly.drop(call)  # its chunks end here: none are to be let pass
            return Cancelled(call)
        if kind == "credit":
            if call is None:
                return None
            call.credit += frame.credit.messages
            if call.credit > _MAX_CREDIT:
                raise Violation(f"the peer granted credit for more than {_MAX_CREDIT} messages")
            return Credited(call)
        raise Violation(f"the peer sent '{kind}' for call {number}, which the peer opened itself")

    def _receive_for_ours(
        self, number: int, kind: str | None, frame: mux_pb2.Frame
    ) -> TableEvent | None:
        call = self._outgoing.get(number)
        if kind not in ("message", "chunk", "end"):
            if call is None:
                raise Violation(f"'{kind}' arrived for the call {number}, which is not open")
            raise Violation(
                f"'{kind}' is not allowed for a call that the receiver of this frame made"
            )
        if call is None:
            if number not in self._cancelled:
                raise Violation(f"'{kind}' arrived for the call {number}, which is not open")
            if kind == "end":
                self._cancelled.discard(number)
            return None
        if kind == "message":
            return self._message(number, call, frame.message)
        if kind == "end":
            return self._end(number, call, frame.end)
        if call.chunks is None:
            raise Violation("a chunk arrived for a message that was complete")
        return self._add_chunk(number, call, frame.chunk.payload, last=frame.chunk.last)

    def _message(
        self, number: int, call: OutgoingCall, message: mux_pb2.Message
    ) -> TableEvent | None:
        if call.chunks is not None:
            raise Violation("a message arrived before the last chunk of the previous message")
        if call.credit == 0:
            raise Violation("a message arrived without credit")
        if call.credit is not None:
            call.credit -= 1
        elif call.response is not None:
            raise Violation("a second response arrived for a unary call")
        payload = _checked(message.payload)
        if message.more:
            call.chunks = Chunks()
            return self._add_chunk(number, call, payload, last=False)
        return _complete(call, payload)

    def _add_chunk(
        self, number: int, call: OutgoingCall, payload: bytes, *, last: bool
    ) -> TableEvent | None:
        problem = self._keep(call, _checked(payload), "the response")
        if problem is not None:
            self.cancel(number)
            return NoRoom(call, problem)
        return _complete(call, self._assembly.join(call)) if last else None

    def _end(self, number: int, call: OutgoingCall, end: mux_pb2.End) -> TableEvent:
        status = end.status if end.HasField("status") and end.status.code else None
        if status is None:
            if call.chunks is not None:
                raise Violation("a call ended with status OK before the last chunk of a message")
            if call.credit is None and call.response is None:
                raise Violation("a unary call ended with status OK and without a response")
        del self._outgoing[number]
        self._assembly.drop(call)
        return CallEnded(call, status)

    def _begin(self, number: int, begin: mux_pb2.Begin) -> TableEvent | None:
        if number == 0 or number in self._incoming or number in self._refused:
            raise Violation(f"the peer used the call number {number} for a second call")
        if begin.more and len(self._refused) >= self._limits.calls:
            raise Violation("the last chunks of too many ended calls did not arrive")
        payload = _checked(begin.payload)
        problem = self._problem_of(begin)
        if problem is not None:
            return self._refuse(number, problem, more=begin.more)
        metadata = dict(begin.metadata) if begin.metadata else NO_METADATA
        call = IncomingCall(number, begin.method, begin.timeout_ms, begin.credit, metadata)
        self._incoming[number] = call
        if not begin.more:
            return Received(call, payload)
        call.chunks = Chunks()
        return self._keep_request(call, payload, last=False) or Receiving(call)

    def _problem_of(self, begin: mux_pb2.Begin) -> MeshError | None:
        """Why a call of theirs is refused, if it is."""
        if self.leaving:
            return draining()
        if len(self._incoming) >= self._limits.calls:
            return queue_full(self._limits.calls)
        if not begin.metadata:
            return None
        limit = self._limits.metadata_bytes
        size = sum(len(key) + len(value) for key, value in begin.metadata.items())
        if size <= limit:
            return None
        return too_large("the metadata of the call", limit, size=size, method=begin.method)

    def _request_chunk(self, number: int, chunk: mux_pb2.Chunk) -> TableEvent | None:
        payload = _checked(chunk.payload)
        call = self._incoming.get(number)
        if call is None:
            if number not in self._refused:
                raise Violation(f"a chunk arrived for the call {number}, which is not open")
            if chunk.last:
                self._refused.discard(number)
            return None
        if call.chunks is None:
            raise Violation("a chunk arrived for a request that was complete")
        refused = self._keep_request(call, payload, last=chunk.last)
        return (
            Received(call, self._assembly.join(call)) if refused is None and chunk.last else refused
        )

    def _keep_request(
        self, call: IncomingCall, payload: bytes, *, last: bool
    ) -> CallRefused | None:
        problem = self._keep(call, payload, f"the request of {call.method}")
        if problem is None:
            return None
        self._assembly.drop(call)
        del self._incoming[call.number]
        return self._refuse(call.number, problem, more=not last)

    def _refuse(self, number: int, problem: MeshError, *, more: bool) -> CallRefused:
        if more:
            self._refused.add(number)
        return CallRefused(number, problem)

    def _keep(
        self, call: OutgoingCall | IncomingCall, payload: bytes, which: str
    ) -> MeshError | None:
        """Keeps a chunk; returns what is wrong when there is no room for it."""
        assert call.chunks is not None  # it is being received
        if len(call.chunks.data) + len(payload) > self._limits.message_bytes:
            return too_large(which, self._limits.message_bytes)
        return self._assembly.add(call, payload)


def _complete(call: OutgoingCall, message: bytes) -> TableEvent | None:
    """A whole message of a call of ours: kept until the end of a unary one."""
    if call.credit is not None:
        return Arrived(call, message)
    call.response = message
    return None


def _checked(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Violation(f"a frame had more than {MAX_PAYLOAD_BYTES} bytes of payload")
    return payload


def draining() -> MeshError:
    """The error for a call to a peer that accepts no new calls."""
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "the server is draining (shutting down) and accepts no new calls; call another instance",
    )


def queue_full(limit: int) -> MeshError:
    """The error for a call above the limit of calls in flight."""
    return errors.queue_full(
        f"this connection already has {limit} calls; retry later", "mux", limit
    )
