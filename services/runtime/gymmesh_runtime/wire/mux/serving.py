"""The calls that this side of a stream serves: one task each, through its binding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.errors import MeshError, deadline_passed, to_status
from gymmesh_runtime.sizes import packed_response
from gymmesh_runtime.timers import MAX_TIMEOUT_S
from gymmesh_runtime.wire.mux import frames
from gymmesh_runtime.wire.mux.calls import (
    CallRefused,
    Cancelled,
    Credited,
    IncomingCall,
    Received,
    Receiving,
    TableEvent,
)
from gymmesh_runtime.wire.mux.outbox import OutboxClosed
from gymmesh_runtime.wire.mux.sender import Sender
from gymmesh_runtime.wire.mux.table import CallTable, Violation

#: For callers that name no deadline.
_OWN_TIMEOUT_S: Final = 3600.0
#: A peer that asks for ever more and reads nothing is cut off with so many frames queued.
_MAX_QUEUED: Final = 262_144

#: Lets a call in, whose identity and metadata it sets. Raises MeshError.
Admit: TypeAlias = Callable[[IncomingCall], None]


class CallServer:
    """Serves the calls of a stream's other side.

    ``methods`` by full name. ``assembly_s``: the time in which all chunks of a request must arrive.
    ``admit`` admits calls; None: all. ``connection``: on which servicers can call the caller.
    """

    def __init__(
        self,
        table: CallTable,
        sender: Sender,
        methods: Mapping[str, BoundMethod],
        assembly_s: float,
        admit: Admit | None = None,
        connection: object | None = None,
    ) -> None:
        self._connection = connection
        self._table = table
        self._sender = sender
        self._methods = methods
        self._assembly_s = assembly_s
        self._admit = admit

    def handle(self, event: TableEvent) -> None:
        """Acts on an event of the table. Raises Violation."""
        match event:
            case Received(call, request):
                self._received(call, request)
            case Receiving(call):
                if self._admitted(call):  # its chunks, too, must come in time
                    timeout = min(call.deadline - monotonic(), self._assembly_s)
                    loop = asyncio.get_running_loop()
                    call.overdue = loop.call_later(timeout, self._overdue, call)
            case CallRefused(number, error):
                self._send_end(number, error)
                if self._sender.queued_items > _MAX_QUEUED:
                    raise Violation("the peer keeps sending requests and reads no answers")
            case Cancelled(call):
                self._cancelled(call)
            case Credited(call):
                if call.waiter is not None and not call.waiter.done():
                    call.waiter.set_result(None)

    def stop(self, calls: Iterable[IncomingCall], outlive_s: float) -> set[asyncio.Task[None]]:
        """Stops the served calls after the stream has ended; returns the tasks that end now.

        Unary calls continue for ``outlive_s`` seconds. Nobody gets their answers, but a servicer
        that stores answers by request_id has them for a retry.
        """
        stopped = set[asyncio.Task[None]]()
        for call in calls:
            if outlive_s and call.started and self._is_unary(call):
                _stop_in(call, outlive_s)
                continue
            call.stop()
            if call.task is not None:
                stopped.add(call.task)
        return stopped

    def _is_unary(self, call: IncomingCall) -> bool:
        return not self._methods[call.method].spec.server_streaming

    # ---- what arrives ---------------------------------------------------------------

    def _received(self, call: IncomingCall, request: bytes) -> None:
        """A call whose request is complete."""
        if call.overdue is not None:  # it was let in with its first chunk
            call.overdue.cancel()
        elif not self._admitted(call):
            return
        call.task = asyncio.create_task(self._serve(call, self._methods[call.method], request))

    def _admitted(self, call: IncomingCall) -> bool:
        """Whether a call is let in; it ends where it is not."""
        method = self._methods.get(call.method)
        try:
            if method is None or method.spec.client_streaming:
                raise not_offered(call.method)
            if self._admit is not None:
                self._admit(call)
        except MeshError as error:
            self._end(call.number, error)
            return False
        call.deadline = monotonic() + _timeout_s(call)
        return True

    def _cancelled(self, call: IncomingCall) -> None:
        self._sender.forget(call.number)
        call.stop()
        if not call.started:  # else the task sends the end
            self._end(call.number, cancelled())

    def _overdue(self, call: IncomingCall) -> None:
        error = deadline_passed(call.method)
        if _timeout_s(call) > self._assembly_s:
            error.message = f"the request did not arrive within {self._assembly_s:g} s"
        self._end(call.number, error)

    # ---- serving --------------------------------------------------------------------

    async def _serve(self, call: IncomingCall, method: BoundMethod, request: bytes) -> None:
        """Serves a call, and ends it."""
        call.started = True
        try:
            if method.spec.server_streaming:
                await self._send_stream(call, method, request)
                self._end(call.number, None)
                return
            message = method.read(request)
            del request  # not to be kept for as long as the call takes
            timeout = call.deadline - monotonic()
            response = await method.call(
                message,
                timeout,
                call.metadata,
                identity=call.identity,
                connection=self._connection,
            )
            answer = frames.answer(call.number, packed_response(method.spec, response))
            if self._sender.full:
                await self._may_send(call, credit=False)
            if self._table.end(call.number):
                self._sender.send(answer)
        except asyncio.CancelledError:
            self._end(call.number, cancelled())
        except Exception as error:
            self._end(call.number, error)

    async def _send_stream(self, call: IncomingCall, method: BoundMethod, request: bytes) -> None:
        responses: Any = method.stream(
            method.read(request),
            timeout=call.deadline - monotonic(),
            metadata=call.metadata,
            identity=call.identity,
            connection=self._connection,
        )
        try:
            async for response in responses:
                message = packed_response(method.spec, response)
                if call.credit == 0 or self._sender.full:
                    await self._may_send(call, credit=True)
                call.credit -= 1
                self._sender.send(frames.message(call.number, message))
        finally:
            await responses.aclose()

    async def _may_send(self, call: IncomingCall, *, credit: bool) -> None:
        """Waits for credit and for room, until the call's deadline."""
        try:
            async with asyncio.timeout(call.deadline - monotonic()):
                while credit and call.credit == 0:
                    call.waiter = asyncio.get_running_loop().create_future()
                    await call.waiter
                await self._sender.room()
        except TimeoutError:
            raise deadline_passed(call.method) from None
        except OutboxClosed:  # the stream has ended, and all its calls
            raise asyncio.CancelledError from None

    def _end(self, number: int, error: BaseException | None) -> None:
        """Ends a call that has not ended; ``error`` None: well."""
        if self._table.end(number):
            self._send_end(number, error)

    def _send_end(self, number: int, error: BaseException | None) -> None:
        status = None if error is None else to_status(error)
        self._sender.send([frames.End(number, status)])


def _stop_in(call: IncomingCall, seconds: float) -> None:
    """Stops a call that is served, unless it has ended by then."""
    timer = asyncio.get_running_loop().call_later(seconds, call.stop)
    if call.task is not None:
        call.task.add_done_callback(lambda _: timer.cancel())


def _timeout_s(call: IncomingCall) -> float:
    return min(call.timeout_ms / 1000, MAX_TIMEOUT_S) or _OWN_TIMEOUT_S


def not_offered(method: str) -> MeshError:
    """The error for a call of a method that is not served over the mux."""
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        f"this server does not offer {method} over the mux",
        metadata={"method": method},
    )


def cancelled() -> MeshError:
    """The error for a call that its caller cancelled."""
    return MeshError(
        errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the call was cancelled before it ended"
    )
