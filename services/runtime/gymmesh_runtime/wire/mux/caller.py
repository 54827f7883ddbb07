"""The calls that this side of a link makes."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import MethodSpec
from gymmesh_runtime.errors import MeshError, deadline_passed, from_status
from gymmesh_runtime.timers import Timer
from gymmesh_runtime.wire.batch import OutboxClosed
from gymmesh_runtime.wire.mux import frames, table
from gymmesh_runtime.wire.mux.frames import BEGIN, CANCEL, CHUNK_BYTES, CREDIT, FRAME_BYTES

if TYPE_CHECKING:  # the link owns its caller
    from gymmesh_runtime.wire.mux.link import Link

#: Messages of a stream that may be under way or wait for their reader.
WINDOW: Final = 64
#: Timers can't be set for ever; a year will do.
MAX_TIMEOUT_S: Final = 365 * 86_400.0


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


class _Expiry(Timer):
    """The end of a call's time."""

    __slots__ = ("_caller", "_sink", "_spec", "number")

    def __init__(self, caller: Caller, number: int, sink: _Sink, spec: MethodSpec) -> None:
        self._caller = caller
        self._sink = sink
        self._spec = spec
        self.number = number

    def ring(self) -> None:
        self._caller.expire(self.number, self._sink, self._spec)


class Caller:
    """Makes calls over a link; each ends with a result or a MeshError."""

    __slots__ = ("_crowd", "_link", "_loop", "_sender", "_table")

    def __init__(self, link: Link, crowd: Crowd) -> None:
        self._link = link
        self._crowd = crowd
        self._table = link.table
        self._sender = link.sender
        self._loop = asyncio.get_running_loop()

    async def unary(
        self, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
    ) -> Any:
        """Makes a call with one response. ``timeout`` in seconds."""
        if self._sender.full:
            timeout = await self._room(timeout, spec)
        reply: asyncio.Future[bytes] = self._loop.create_future()
        timer = self._begin(reply, spec, request, timeout, metadata, 0)
        try:
            answer = await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled():
                reply.exception()  # it failed in the same turn, and nobody else will ask
            self._give_up(timer.number)
            raise
        finally:
            timer.stop()
            self._crowd.calls -= 1
        return _parsed(spec, answer)

    async def stream(
        self, spec: MethodSpec, request: Any, timeout: float, metadata: Mapping[str, str]
    ) -> AsyncIterator[Any]:
        """Makes a call with a response stream."""
        if self._sender.full:
            timeout = await self._room(timeout, spec)
        inbox = Inbox()
        timer = self._begin(inbox, spec, request, timeout, metadata, WINDOW)
        number = timer.number
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
                yield _parsed(spec, messages.popleft())
        finally:
            timer.stop()
            self._crowd.calls -= 1
            self._give_up(number)

    # ---- what arrives ---------------------------------------------------------------

    def arrived(self, event: table.Arrived) -> None:
        """A message of a stream."""
        event.sink.messages.append(event.payload)
        event.sink.wake()

    def ended(self, event: table.Ended) -> None:
        """The end of a call."""
        sink: _Sink = event.sink
        error = None if event.status is None else from_status(event.status)
        if error is None and not isinstance(sink, Inbox):
            if not sink.done():
                sink.set_result(event.payload)
        else:
            _finish(sink, error)
        self._link.settle()

    def failed(self, event: table.Failed) -> None:
        """A response for which there is no room."""
        self._tell_cancelled(event.number)
        _finish(event.sink, event.error)

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
        credit: int,
    ) -> _Expiry:
        """Sends what begins a call, which is one of the crowd then; returns its timer, set."""
        if timeout <= 0:
            raise deadline_passed(spec.full_name)
        if timeout > MAX_TIMEOUT_S:
            timeout = MAX_TIMEOUT_S
        payload = _payload(request)
        if not self._link.usable:
            raise self._link.error()
        if metadata:
            _check(metadata)
        call_table = self._table
        number = call_table.open(sink, streaming=credit > 0, credit=credit)
        crowd = self._crowd.calls = self._crowd.calls + 1
        timeout_ms = math.ceil(timeout * 1000)
        size = len(payload)
        if size <= CHUNK_BYTES:
            frame = (BEGIN, number, spec.full_name, timeout_ms, metadata, payload, False, credit)
            self._sender.send_one(number, frame, size + FRAME_BYTES, crowd)
        else:
            large = frames.begin(number, spec.full_name, timeout_ms, metadata, payload, credit)
            self._sender.send(number, large, crowd)
        timer = _Expiry(self, number, sink, spec)
        timer.set(timeout)
        return timer

    async def _room(self, timeout: float, spec: MethodSpec) -> float:
        """Waits for room to send; returns what is left of the timeout, in seconds."""
        timeout = min(timeout, MAX_TIMEOUT_S)
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

    def expire(self, number: int, sink: _Sink, spec: MethodSpec) -> None:
        """A call's time is up."""
        if self._give_up(number):
            if isinstance(sink, Inbox):
                sink.messages.clear()
            _finish(sink, deadline_passed(spec.full_name))

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


def _payload(request: Any) -> bytes:
    payload: bytes = request.SerializeToString()
    if len(payload) > frames.MAX_MESSAGE:
        raise table.too_large(frames.MAX_MESSAGE)
    return payload


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


def _parsed(spec: MethodSpec, payload: bytes) -> Any:
    try:
        return spec.response_class.FromString(payload)
    except DecodeError:
        raise MeshError(
            errors_pb2.ERROR_REASON_CONTRACT_VIOLATED,
            f"the answer of {spec.full_name} is not a {spec.response_class.DESCRIPTOR.full_name}",
            metadata={"rule": "response", "method": spec.full_name},
        ) from None
