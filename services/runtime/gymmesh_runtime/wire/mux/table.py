"""The calls of one link: a pure state machine, the same for both sides.

It is given every frame that arrives and tells what happened; it sends nothing
and knows no clock. Our calls and theirs, and what each may still be sent:

    ours    OPEN       message and chunks, end                 -> gone
            CANCELLED  anything that was on its way, then end  -> gone
    theirs  RECEIVING  chunks of the request, credit, cancel   -> SERVING
            SERVING    credit, cancel                          -> gone with our end
            REFUSED    chunks that were on their way           -> gone with the last

Any other frame breaks the protocol and raises ``Violation``: the link ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import KIB, MIB
from gymmesh_runtime.wire.mux.assembly import Assembly, AssemblyBudget, Parts
from gymmesh_runtime.wire.mux.frames import MAX_MESSAGE, MAX_PAYLOAD_BYTES
from gymmesh_runtime.wire.sizes import too_large

_MAX_CREDIT: Final = 2**31
_RETRY_S: Final = 1.0
# Of their classes: a message looks through the names of its fields to find its own.
_which = mux_pb2.Frame.WhichOneof
_is_set = mux_pb2.End.HasField


class Violation(Exception):
    """The peer broke the protocol; the message names the rule."""


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Bounds of one link. Calls are counted for each side; bytes are those received."""

    calls: int = 32_768
    message_bytes: int = MAX_MESSAGE
    metadata_bytes: int = 16 * KIB  # of a call, as plain gRPC has it
    assembly_bytes: int = 256 * MIB  # of all messages whose last chunk is still missing
    assembly_s: float = 60.0  # from the first chunk of a request to its last
    call_bytes: int = 4 * KIB  # what one of them counts for besides its chunks


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom a table tells what happened: functions, as an event for each call would cost more.

    They are called one by one, in the order of the frames, and may call the table in turn.
    """

    #: A message of a stream of ours: its sink and the message.
    arrived: Callable[[Any, bytes], object]
    #: A unary call of ours ended well: its sink and the response.
    answered: Callable[[Any, bytes], object]
    #: Another call of ours ended: its sink and the status (None: well).
    ended: Callable[[Any, status_pb2.Status | None], object]
    #: A call of ours was given up, since there is no room for its response: its number and sink.
    #: To be cancelled.
    failed: Callable[[int, Any, MeshError], object]
    #: A call of theirs began, and chunks of its request are still to come.
    receiving: Callable[[Theirs], object]
    #: A call of theirs is to be served: with its request.
    began: Callable[[Theirs, bytes], object]
    #: A call of theirs is not served: its number, which is to be ended with the error.
    refused: Callable[[int, MeshError], object]
    #: A call of theirs was cancelled; an end is still to be sent.
    dropped: Callable[[Theirs], object]
    #: A call of theirs may be sent more; its ``credit`` is the new sum.
    credited: Callable[[Theirs], object]
    #: The peer takes no new calls, for a reason.
    leaving: Callable[[str], object]


class Ours(Protocol):
    """A call that this side made: what the table keeps with it. The object is its maker's."""

    #: What the maker knows it by.
    sink: Any
    #: Messages of a stream that may still come; None: a unary call.
    granted: int | None
    #: The response of a unary call; None before it came.
    answer: bytes | None
    #: The message under way; None when there is none.
    parts: Parts | None


class Theirs(msgspec.Struct, eq=False):
    """A call that the other side made. ``sink`` belongs to whoever serves it."""

    # A Struct, as there is one for each call: it is filled without a step in Python.

    number: int
    method: str
    timeout_ms: int
    metadata: Mapping[str, str] = NO_METADATA
    credit: int = 0  # messages that may still be sent
    sink: Any = None
    parts: Parts | None = None  # None: the request is complete
    identity: str = ""  # the caller's name, where callers have one


class CallTable:
    """The calls in flight on one link.

    ``opener`` says whether this side opened the stream, and so has the odd numbers. ``budget``
    bounds the unfinished messages of all links that have it; None: this one has its own.
    """

    def __init__(
        self,
        *,
        opener: bool,
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
    ) -> None:
        self._limits = limits or TableLimits()
        self._assembly = Assembly(self._limits.assembly_bytes, budget or AssemblyBudget())
        self._next = 1 if opener else 2
        self._parity = self._next % 2
        self._ours: dict[int, Ours] = {}
        self._cancelled: set[int] = set()
        self._theirs: dict[int, Theirs] = {}
        #: Their calls that are not ended, by number; it changes with them.
        self.served: Mapping[int, Theirs] = self._theirs
        self._refused: set[int] = set()
        self.leaving = False  # this side takes no new calls
        self.peer_leaving = False

    @property
    def assembling(self) -> int:
        """Bytes that messages take whose last chunk is still missing."""
        return self._assembly.held

    def close(self) -> None:
        """Gives up what unfinished messages take, for a link that ended."""
        self._assembly.close()

    # ---- our calls ------------------------------------------------------------------

    @property
    def ours(self) -> int:
        """Our calls that have not ended, without the cancelled ones."""
        return len(self._ours)

    def open(self, call: Ours) -> int:
        """Begins a call of ours and returns its number. Its ``sink`` comes back with what happens.

        Raises QUEUE_FULL, also when the peer does not end what was cancelled, and
        DRAINING when it takes no new calls.
        """
        if self.peer_leaving:
            raise draining()
        if len(self._ours) + len(self._cancelled) >= self._limits.calls:
            raise _queue_full(self._limits.calls)
        number = self._next
        self._next += 2
        self._ours[number] = call
        return number

    def cancel(self, number: int) -> bool:
        """Gives a call of ours up; returns whether the peer must be told (it had not ended)."""
        call = self._ours.pop(number, None)
        if call is None:
            return False
        self._drop_parts(call)
        self._cancelled.add(number)
        return True

    def grant(self, number: int, messages: int) -> bool:
        """Allows more messages; returns whether the peer must be told."""
        call = self._ours.get(number)
        if call is None or call.granted is None:
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

    def end(self, number: int) -> bool:
        """Ends a call of theirs; returns whether it was there, so that `end` is to be sent."""
        call = self._theirs.pop(number, None)
        if call is None:
            return False
        if call.parts is not None:
            self._drop_parts(call)
            self._refused.add(number)
        return True

    # ---- what arrives ---------------------------------------------------------------

    def receive(self, batch: mux_pb2.ExchangeRequest, told: Listener) -> None:
        """Takes a batch and tells what happened. Raises Violation."""
        ours, parity = self._ours, self._parity
        if not batch.frames:
            raise Violation("a batch came without a frame")
        for frame in batch.frames:
            number, kind = frame.call, _which(frame, "kind")
            if number % 2 == parity and number:
                call = ours.get(number)
                if call is None:
                    self._receive_late(number, kind)
                elif kind == "message":
                    self._message(number, call, frame.message, told)
                elif kind == "end":
                    self._end(number, call, frame.end, told)
                elif kind == "chunk":
                    self._chunk(number, call, frame.chunk, told)
                else:
                    raise Violation(f"'{kind}' came for a call that its receiver had made")
            elif kind == "begin":
                self._begin(number, frame.begin, told)
            elif kind == "go_away":
                self.peer_leaving = True
                told.leaving(frame.go_away.reason)
            else:
                self._receive_for_theirs(number, kind, frame, told)

    def _receive_late(self, number: int, kind: str | None) -> None:
        if number in self._cancelled and kind in ("message", "chunk", "end"):
            if kind == "end":
                self._cancelled.discard(number)
            return
        raise Violation(f"'{kind}' came for the call {number}, which is not open")

    def _message(self, number: int, call: Ours, message: mux_pb2.Message, told: Listener) -> None:
        if call.parts is not None:
            raise Violation("a message came before the last chunk of the one before")
        if call.granted is not None:
            if call.granted == 0:
                raise Violation("a message came without credit")
            call.granted -= 1
        elif call.answer is not None:
            raise Violation("a second response came for a unary call")
        payload = message.payload
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise _too_much()
        if message.more:
            call.parts = Parts()
            self._gather(number, call, payload, told)
        elif call.granted is None:
            call.answer = payload
        else:
            told.arrived(call.sink, payload)

    def _chunk(self, number: int, call: Ours, chunk: mux_pb2.Chunk, told: Listener) -> None:
        if call.parts is None:
            raise Violation("a chunk came for a message that was complete")
        payload = chunk.payload
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise _too_much()
        if not self._gather(number, call, payload, told) or not chunk.last:
            return
        whole = self._join(call)
        if call.granted is None:
            call.answer = whole
        else:
            told.arrived(call.sink, whole)

    def _gather(self, number: int, call: Ours, payload: bytes, told: Listener) -> bool:
        problem = self._keep(call, payload)
        if problem is None:
            return True
        self.cancel(number)
        told.failed(number, call.sink, problem)
        return False

    def _end(self, number: int, call: Ours, end: mux_pb2.End, told: Listener) -> None:
        status = end.status if _is_set(end, "status") and end.status.code else None
        if status is None:
            if call.parts is not None:
                raise Violation("a call ended well before the last chunk of a message")
            if call.granted is None and call.answer is None:
                raise Violation("a unary call ended well without a response")
        del self._ours[number]
        if call.parts is not None:
            self._drop_parts(call)
        if status is None and call.answer is not None:
            told.answered(call.sink, call.answer)
        else:
            told.ended(call.sink, status)

    def _begin(self, number: int, begin: mux_pb2.Begin, told: Listener) -> None:
        payload, more = begin.payload, begin.more
        if not self._admits(number, payload, told, more=more):
            return
        call = self._theirs[number] = Theirs(number, begin.method, begin.timeout_ms)
        call.credit = begin.credit
        if metadata := begin.metadata:
            call.metadata = dict(metadata)
        if metadata and _size_of(metadata) > self._limits.metadata_bytes:
            del self._theirs[number]
            if more:
                self._refused.add(number)
            told.refused(number, self._metadata_too_large(call))
        elif not more:
            told.began(call, payload)
        else:
            call.parts = Parts()
            if self._keep_request(call, payload, told, last=False):
                told.receiving(call)

    def _admits(self, number: int, payload: bytes, told: Listener, *, more: bool) -> bool:
        """Whether a call of theirs may begin; if not, it is refused."""
        if number == 0 or number in self._theirs or number in self._refused:
            raise Violation(f"the call number {number} was used again")
        if more and len(self._refused) >= self._limits.calls:
            raise Violation("too many calls were given up whose chunks did not come")
        if number % 2 == self._parity:
            raise Violation(f"'begin' came for the call {number}, which its receiver has to make")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise _too_much()
        if not self.leaving and len(self._theirs) < self._limits.calls:
            return True
        if more:
            self._refused.add(number)
        told.refused(number, draining() if self.leaving else _queue_full(self._limits.calls))
        return False

    def _receive_for_theirs(
        self, number: int, kind: str | None, frame: mux_pb2.Frame, told: Listener
    ) -> None:
        call = self._theirs.get(number)
        if kind == "chunk":
            self._request_chunk(number, call, frame.chunk, told)
        elif kind == "cancel":
            if call is not None:  # else it crossed our end
                self._drop_parts(call)  # its chunks end here: none are to be let pass
                told.dropped(call)
        elif kind == "credit":
            if call is not None:
                call.credit += frame.credit.messages
                if call.credit > _MAX_CREDIT:
                    raise Violation(f"more than {_MAX_CREDIT} messages of credit were granted")
                told.credited(call)
        else:
            raise Violation(f"'{kind}' came for the call {number}, which the sender had made")

    def _request_chunk(
        self, number: int, call: Theirs | None, chunk: mux_pb2.Chunk, told: Listener
    ) -> None:
        payload = chunk.payload
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise _too_much()
        if call is None:
            if number not in self._refused:
                raise Violation(f"a chunk came for the call {number}, which is not open")
            if chunk.last:
                self._refused.discard(number)
            return
        if call.parts is None:
            raise Violation("a chunk came for a request that was complete")
        if self._keep_request(call, payload, told, last=chunk.last) and chunk.last:
            told.began(call, self._join(call))

    def _keep_request(self, call: Theirs, payload: bytes, told: Listener, *, last: bool) -> bool:
        problem = self._keep(call, payload)
        if problem is None:
            return True
        self._drop_parts(call)
        del self._theirs[call.number]
        if not last:
            self._refused.add(call.number)
        told.refused(call.number, problem)
        return False

    def _metadata_too_large(self, call: Theirs) -> MeshError:
        limit, size = self._limits.metadata_bytes, _size_of(call.metadata)
        return too_large("the metadata of the call", limit, size=size, method=call.method)

    # ---- messages in chunks ---------------------------------------------------------

    def _keep(self, call: Ours | Theirs, payload: bytes) -> MeshError | None:
        """Keeps a chunk; returns what is wrong when there is no room for it."""
        parts, size = call.parts, len(payload)
        assert parts is not None  # it is being received
        if len(parts.data) + size > self._limits.message_bytes:
            which = f"the request of {call.method}" if isinstance(call, Theirs) else "the response"
            return too_large(which, self._limits.message_bytes)
        cost = size if parts.cost else size + self._limits.call_bytes
        full = self._assembly.take(cost)
        if full is None:
            parts.data += payload
            parts.cost += cost
        return full

    def _join(self, call: Ours | Theirs) -> bytes:
        assert call.parts is not None  # it was being received
        whole = bytes(call.parts.data)
        self._drop_parts(call)
        return whole

    def _drop_parts(self, call: Ours | Theirs) -> None:
        if call.parts is not None:
            self._assembly.give_back(call.parts.cost)
            call.parts = None


def _size_of(metadata: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in metadata.items())


def _too_much() -> Violation:
    return Violation(f"a frame had more than {MAX_PAYLOAD_BYTES} bytes of payload")


def draining() -> MeshError:
    """The error of a call to a peer that takes no new ones."""
    return MeshError(
        errors_pb2.ERROR_REASON_DRAINING,
        "the server is draining and takes no new calls; call another instance",
    )


def _queue_full(limit: int) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"{limit} calls are in flight on this connection already; try again later",
        metadata={"queue": "mux", "limit": str(limit)},
        retry_after_s=_RETRY_S,
    )
