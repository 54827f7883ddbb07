"""The calls that this side of a link makes."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError, bounded_timeout, deadline_passed, from_status
from gymmesh_runtime.timers import Timer, running_wheel
from gymmesh_runtime.wire.batch import OutboxClosed
from gymmesh_runtime.wire.mux import frames
from gymmesh_runtime.wire.mux.assembly import Parts
from gymmesh_runtime.wire.mux.frames import BEGIN, CANCEL, CHUNK_BYTES, CREDIT, FRAME_BYTES
from gymmesh_runtime.wire.sizes import request_too_large

if TYPE_CHECKING:  # the link owns its caller
    from gymmesh_runtime.wire.mux.link import Link

#: Messages of a stream that may be under way or wait for their reader.
WINDOW: Final = 64


class Inbox:
    """What has arrived of a stream and was not read yet."""

    __slots__ = ("error", "messages", "over", "waiter")

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.over = False
        self.error: MeshError | None = None
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wakes the reader."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def finish(self, error: MeshError | None) -> None:
        """No more comes."""
        self.over, self.error = True, error
        self.wake()


_Sink = asyncio.Future[bytes] | Inbox


class Crowd:
    """How many calls a process has in flight, over all its links."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class _Call(Timer):
    """A call under way, which is the timer of its own end, as the table and the wheel keep it."""

    __slots__ = ("answer", "caller", "granted", "number", "parts", "sink", "spec")

    # Whoever makes one fills it in: an `__init__` would cost as much as all the rest of it.
    answer: bytes | None
    caller: Caller
    granted: int | None
    number: int
    parts: Parts | None
    sink: _Sink
    spec: MethodSpec

    def ring(self) -> None:
        self.caller.expire(self)


class Caller:
    """Makes calls over a link; each ends with a result or a MeshError."""

    __slots__ = ("_crowd", "_link", "_loop", "_sender", "_table", "_wheel")

    def __init__(self, link: Link, crowd: Crowd) -> None:
        self._link = link
        self._crowd = crowd
        self._table = link.table
        self._sender = link.sender
        self._loop = asyncio.get_running_loop()
        self._wheel = running_wheel()

    async def unary(
        self, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
    ) -> Any:
        """Makes a call with one response. ``timeout`` in seconds."""
        if self._sender.full:
            timeout = await self._room(timeout, spec)
        reply: asyncio.Future[bytes] = self._loop.create_future()
        call = self._begin(reply, spec, request, timeout, metadata, None)
        try:
            answer = await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled():
                reply.exception()  # it failed in the same turn, and nobody else will ask
            self._give_up(call.number)
            raise
        finally:
            call.stop()
            self._crowd.calls -= 1
        read = spec.read_response  # called as a method, it would be looked for in the class first
        try:
            return read(answer)
        except DecodeError:
            raise spec.undecodable_response(self._link.peer) from None

    async def stream(
        self, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
    ) -> AsyncIterator[Any]:
        """Makes a call with a response stream."""
        if self._sender.full:
            timeout = await self._room(timeout, spec)
        inbox = Inbox()
        call = self._begin(inbox, spec, request, timeout, metadata, WINDOW)
        number = call.number
        messages = inbox.messages
        read = 0
        try:
            while True:
                while not messages:
                    if inbox.over:
                        if inbox.error is not None:
                            raise inbox.error
                        return
                    inbox.waiter = self._loop.create_future()
                    await inbox.waiter
                read += 1
                if read == WINDOW // 2:
                    self._grant(number, read)
                    read = 0
                try:
                    message = spec.read_response(messages.popleft())
                except DecodeError:
                    raise spec.undecodable_response(self._link.peer) from None
                yield message
        finally:
            call.stop()
            self._crowd.calls -= 1
            self._give_up(number)

    # ---- what arrives ---------------------------------------------------------------

    def arrived(self, inbox: Inbox, payload: bytes) -> None:
        """A message of a stream."""
        inbox.messages.append(payload)
        inbox.wake()

    def answered(self, sink: asyncio.Future[bytes], payload: bytes) -> None:
        """The response of a unary call that went well."""
        if not sink.done():
            sink.set_result(payload)
        if self._link.ending:
            self._link.settle()

    def ended(self, sink: _Sink, status: status_pb2.Status | None) -> None:
        """The end of another call."""
        _finish(sink, None if status is None else from_status(status))
        if self._link.ending:
            self._link.settle()

    def failed(self, number: int, sink: _Sink, error: MeshError) -> None:
        """A response for which there is no room."""
        self._tell_cancelled(number)
        _finish(sink, error)

    def fail_all(self) -> None:
        """The link ended: so do all calls."""
        for sink in self._table.give_up_all():
            _finish(sink, self._link.error())

    # ---- the steps of a call --------------------------------------------------------

    def _begin(
        self,
        sink: _Sink,
        spec: MethodSpec,
        request: Any,
        timeout: float,
        metadata: Mapping[str, str],
        granted: int | None,
    ) -> _Call:
        """Sends what begins a call, which is one of the crowd then, and sets its timer.

        ``granted`` is how many messages of a stream may come at first; None: it is a unary call.
        """
        timeout = bounded_timeout(timeout, spec.full_name)
        pack = spec.pack_request  # called as a method, it would be looked for in the class first
        payload = pack(request)
        size = len(payload)
        if size > frames.MAX_MESSAGE:
            raise request_too_large(spec, size)
        if not self._link.usable:
            raise self._link.error()
        if metadata:
            _check(metadata)
        call = _Call()
        call.caller, call.sink, call.spec, call.granted = self, sink, spec, granted
        call.answer = call.parts = None
        number = call.number = self._table.open(call)
        crowd = self._crowd.calls = self._crowd.calls + 1
        timeout_ms = math.ceil(timeout * 1000)
        credit = granted or 0
        if size <= CHUNK_BYTES:
            name = spec.full_name
            frame = (BEGIN, number, name, timeout_ms, metadata, payload, False, credit)
            self._sender.send_one(number, frame, size + FRAME_BYTES, crowd)
        else:
            large = frames.begin(number, spec.full_name, timeout_ms, metadata, payload, credit)
            self._sender.send(number, large, crowd)
        call.set(timeout, self._wheel)
        return call

    async def _room(self, timeout: float, spec: MethodSpec) -> float:
        """Waits for room to send; returns what is left of the timeout, in seconds."""
        timeout = bounded_timeout(timeout, spec.full_name)
        deadline = self._loop.time() + timeout
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                await self._sender.room()
        except OutboxClosed:
            raise self._link.error() from None
        except TimeoutError:
            raise deadline_passed(spec.full_name) from None
        return max(deadline - self._loop.time(), 0.001)

    def _grant(self, number: int, messages: int) -> None:
        if self._table.grant(number, messages):
            frame = (CREDIT, number, messages)
            self._sender.send_one(number, frame, FRAME_BYTES, self._crowd.calls)

    def expire(self, call: _Call) -> None:
        """A call's time is up."""
        if self._give_up(call.number):
            sink = call.sink
            if isinstance(sink, Inbox):
                sink.messages.clear()
            _finish(sink, deadline_passed(call.spec.full_name))

    def _give_up(self, number: int) -> bool:
        if not self._table.cancel(number):
            return False
        self._tell_cancelled(number)
        return True

    def _tell_cancelled(self, number: int) -> None:
        self._sender.forget(number)
        self._sender.send_one(number, (CANCEL, number), FRAME_BYTES)
        self._link.settle()


def _finish(sink: _Sink, error: MeshError | None) -> None:
    if isinstance(sink, Inbox):
        sink.finish(error)
    elif error is not None and not sink.done():
        sink.set_exception(error)


def _check(metadata: Mapping[str, str]) -> None:
    """Raises FIELD_INVALID for what no frame can carry: it would spoil a whole batch."""
    for key, value in metadata.items():
        try:
            key.encode()
            value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"the metadata {key!r} is not text that UTF-8 can say",
                metadata={"field": "metadata"},
            ) from None
