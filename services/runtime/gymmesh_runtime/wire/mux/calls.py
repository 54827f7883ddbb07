"""The calls of a stream, as its table stores them, and the events of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from google.rpc import status_pb2

from gymmesh_runtime.context import NO_METADATA
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.mux.assembly import Chunks


class OutgoingCall(msgspec.Struct, eq=False):
    """A call that this side made. The table sets the first four attributes, the caller the
    others.
    """

    number: int = 0
    credit: int | None = None  # messages of a stream that may still come; None: a unary call
    response: bytes | None = None  # of a unary call
    chunks: Chunks | None = None  # the message under way
    messages: list[bytes] = []  # of a stream, that were not read yet
    over: bool = False
    error: MeshError | None = None  # of one that is over; None: it went well
    waiter: asyncio.Future[None] | None = None  # of the task that waits for more

    def wake(self) -> None:
        """Wakes the task that waits for messages."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def finish(self, error: MeshError | None) -> None:
        """The call has ended: no more messages arrive."""
        self.over, self.error = True, error
        self.wake()


class IncomingCall(msgspec.Struct, eq=False):
    """A call that the other side made. The table sets the first six attributes, the server the
    others.
    """

    number: int
    method: str
    timeout_ms: int
    credit: int  # messages that may still be sent
    metadata: Mapping[str, str] = NO_METADATA
    chunks: Chunks | None = None  # None: the request is complete
    identity: str = ""  # the caller's name, where callers have one
    deadline: float = 0.0  # on the monotonic clock, in seconds
    overdue: asyncio.TimerHandle | None = None  # set while chunks of the request are to come
    task: asyncio.Task[None] | None = None
    started: bool = False  # whether the task has taken its first step
    waiter: asyncio.Future[None] | None = None  # of a stream that waits for credit

    def stop(self) -> None:
        if self.overdue is not None:
            self.overdue.cancel()
        if self.task is not None:
            self.task.cancel()


class TableEvent(msgspec.Struct):
    """An event of one call, or of all calls."""


class Arrived(TableEvent):
    """A message of one of our response streams arrived."""

    call: OutgoingCall
    payload: bytes


class CallEnded(TableEvent):
    """One of our calls ended. Without a status it succeeded, and a unary call has its response."""

    call: OutgoingCall
    status: status_pb2.Status | None


class NoRoom(TableEvent):
    """There is no room for the response of one of our calls. The call must be cancelled, with the
    error.
    """

    call: OutgoingCall
    error: MeshError


class Receiving(TableEvent):
    """A call of the peer began. More chunks of its request will arrive."""

    call: IncomingCall


class Received(TableEvent):
    """A call of the peer must be served."""

    call: IncomingCall
    request: bytes


class CallRefused(TableEvent):
    """A call of the peer is not served. It must be ended with the error."""

    number: int
    error: MeshError


class Cancelled(TableEvent):
    """A call of the peer was cancelled. Its end must still be sent."""

    call: IncomingCall


class Credited(TableEvent):
    """More messages may be sent for a call of the peer; its ``credit`` is the new sum."""

    call: IncomingCall


class PeerLeaves(TableEvent):
    """The peer accepts no new calls."""

    reason: str
