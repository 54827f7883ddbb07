"""The calls that this side of a link serves, each through its binding like a plain call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.errors import MeshError, deadline_passed, to_status
from gymmesh_runtime.timers import MAX_TIMEOUT_S, call_within
from gymmesh_runtime.wire.batch import OutboxClosed
from gymmesh_runtime.wire.mux import frames, table
from gymmesh_runtime.wire.mux.frames import ANSWER, CHUNK_BYTES, END, FRAME_BYTES, MESSAGE
from gymmesh_runtime.wire.sizes import packed_response, response_too_large

if TYPE_CHECKING:  # the link owns its callee
    from gymmesh_runtime.wire.mux.link import Link

#: For callers that name no deadline.
_OWN_TIMEOUT_S: Final = 3600.0
#: A peer that asks for ever more and reads nothing is cut off with so many frames queued.
_MAX_QUEUED: Final = 262_144
#: So many calls of a method that had to wait get a task of their own before one stands in line
#: again, to see whether they still have to.
_ALONE: Final = 1000

#: Lets a call in, whose identity and metadata it sets. Raises MeshError.
Admit: TypeAlias = Callable[[table.Theirs], None]


class Incoming:
    """A call whose request comes in chunks."""

    __slots__ = ("deadline", "timer")

    def __init__(self, timeout: float, assembly_s: float, overdue: Callable[[], object]) -> None:
        self.deadline = monotonic() + timeout
        self.timer = call_within(min(timeout, assembly_s), overdue)


class Callee:
    """Serves the calls of a link's other side.

    A call's ``sink`` is first the ``Incoming``, if its request comes in chunks, and then the task
    that serves it, None while it stands in line.

    Most unary calls never wait, and a task each would be a good part of what they cost. So they
    stand in line for one task, which serves them up to and with the first that does wait. It is
    that call's own then, and another task serves the rest of the line.
    """

    __slots__ = (
        "_admit",
        "_alone",
        "_assembly_s",
        "_at",
        "_line",
        "_link",
        "_loop",
        "_methods",
        "_sender",
        "_served",
        "_server",
        "_table",
        "_without_credit",
    )

    def __init__(
        self,
        link: Link,
        methods: Mapping[str, BoundMethod],
        assembly_s: float,
        admit: Admit | None = None,
    ) -> None:
        self._admit = admit
        self._link = link
        self._table = link.table
        self._served = link.table.served
        self._sender = link.sender
        self._methods = methods
        self._assembly_s = assembly_s  # how long the chunks of a request may take to come
        self._loop = asyncio.get_running_loop()
        self._without_credit: dict[int, asyncio.Future[None]] = {}  # streams that wait for it
        self._line: deque[tuple[table.Theirs, float, BoundMethod, bytes]] = deque()
        self._server: asyncio.Task[None] | None = None  # of the line; None once it waits
        self._at: BoundMethod | None = None  # the method that was served last in line
        self._alone: dict[BoundMethod, int] = {}  # how many calls do not stand in line

    def stop(self) -> set[asyncio.Task[None]]:
        """Cancels all calls, whose caller is gone; returns their tasks."""
        tasks: set[asyncio.Task[None]] = set()
        if self._server is not None:
            tasks.add(self._server)  # it will find that the calls in line have ended
        for call in list(self._served.values()):
            self._table.end(call.number)
            if isinstance(call.sink, Incoming):
                call.sink.timer.stop()
            elif call.sink is not None:
                call.sink.cancel()
                tasks.add(call.sink)
        return tasks

    # ---- what arrives ---------------------------------------------------------------

    def receiving(self, call: table.Theirs) -> None:
        """A call whose request comes in chunks; they, too, must come in time."""
        if call.method not in self._methods:
            self._fail(call.number, _not_offered(call.method))
            return
        if self._admit is not None and not self._admitted(self._admit, call):
            return
        call.sink = Incoming(_timeout_s(call), self._assembly_s, partial(self._overdue, call))

    def began(self, call: table.Theirs, payload: bytes) -> None:
        """A call whose request is there."""
        method = self._methods.get(call.method)
        if call.sink is None:
            deadline = monotonic() + _timeout_s(call)
        else:  # its chunks took some of the time
            deadline = call.sink.deadline
            call.sink.timer.stop()
        if method is None or method.spec.client_streaming:
            self._fail(call.number, _not_offered(call.method))
            return
        if self._admit is not None and call.sink is None and not self._admitted(self._admit, call):
            return
        if method.spec.server_streaming:
            call.sink = self._loop.create_task(self._stream(call, deadline, method, payload))
        else:
            self._begin(call, deadline, method, payload)

    def _admitted(self, admit: Admit, call: table.Theirs) -> bool:
        """Whether a call is let in; it ends where it is not."""
        try:
            admit(call)
        except MeshError as error:
            self._fail(call.number, error)
            return False
        return True

    def refused(self, number: int, error: MeshError) -> None:
        """A call that the table has no room for."""
        self._send_end(number, error)
        if self._sender.queued_items > _MAX_QUEUED:
            self._link.cut()

    def dropped(self, call: table.Theirs) -> None:
        """A call whose caller gave it up."""
        sink: Incoming | asyncio.Task[None] | None = call.sink
        self._sender.forget(call.number)
        if isinstance(sink, Incoming):
            sink.timer.stop()
        elif sink is not None:
            sink.cancel()
            served: Any = sink.get_coro()
            if getcoroutinestate(served) != CORO_CREATED:
                return  # it says the end itself
        self._fail(call.number, _cancelled())

    def credited(self, call: table.Theirs) -> None:
        """A stream that may go on."""
        waiter = self._without_credit.get(call.number)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ---- serving --------------------------------------------------------------------

    def _begin(
        self, call: table.Theirs, deadline: float, method: BoundMethod, payload: bytes
    ) -> None:
        alone = self._alone.get(method)
        if alone:
            self._alone[method] = alone - 1
            served = self._unary(call, deadline, method, payload)
            # The loop's `create_task` would make up a name, at an eighth of all that a task costs.
            call.sink = asyncio.Task(served, loop=self._loop, name=call.method)
            return
        call.sink = None
        self._line.append((call, deadline, method, payload))
        if self._server is None:
            self._server = self._loop.create_task(self._in_line())
            self._loop.call_soon(self._stepped)  # that is, once the task has taken its first step

    def _stepped(self) -> None:
        server, self._server = self._server, None
        if self._at is not None and server is not None and not server.done():
            self._alone[self._at] = _ALONE  # it waits
        if self._line:
            line, self._line = self._line, deque()
            for call, deadline, method, payload in line:
                if self._served.get(call.number) is call:  # else it was given up
                    self._begin(call, deadline, method, payload)

    async def _in_line(self) -> None:
        """Serves the line, up to and with the first call that waits, or leaves a trace in its task.

        So each finds its task and context as if they were its own.
        """
        server, line = self._server, self._line  # the line is this one's alone
        assert server is not None  # it was set when this was
        clean = copy_context()
        while line:
            call, deadline, method, payload = line.popleft()
            if self._served.get(call.number) is not call:
                continue  # it was given up
            call.sink, self._at = server, method
            await self._unary(call, deadline, method, payload)
            if self._server is not server:
                return  # it waited, and the others are served
            if server.cancelling() or copy_context() != clean:
                return

    async def _unary(
        self, call: table.Theirs, deadline: float, method: BoundMethod, payload: bytes
    ) -> None:
        number, spec = call.number, method.spec
        # Called as methods, they would be looked for in the class first.
        read, pack = spec.read_request, spec.pack_response
        try:
            request = read(payload)
            timeout = deadline - monotonic()
            response = await method.call(request, timeout, call.metadata, None, call.identity)
            answer = pack(response)
            size = len(answer)
            if size > frames.MAX_MESSAGE:
                raise response_too_large(spec, size)
            sender = self._sender
            if sender.full:
                await self._may_send(call, deadline, credit=False)
            # Those in line are answered in this turn, too: none of them is worth waiting for.
            crowd = len(self._served) - len(self._line)
            if not self._table.end(number):
                return
            if size <= CHUNK_BYTES:
                sender.send_one(number, (ANSWER, number, answer), size + FRAME_BYTES, crowd)
            else:
                sender.send(number, frames.answer(number, answer), crowd)
            if self._link.ending:
                self._link.settle()
        except asyncio.CancelledError:
            self._fail(number, _cancelled())
        except DecodeError:
            self._fail(number, method.undecodable())
        except Exception as exc:
            self._fail(number, exc)

    async def _stream(
        self, call: table.Theirs, deadline: float, method: BoundMethod, payload: bytes
    ) -> None:
        number = call.number
        responses: Any = None
        try:
            request = method.spec.read_request(payload)
            timeout = deadline - monotonic()
            responses = method.stream(
                request, timeout=timeout, metadata=call.metadata, identity=call.identity
            )
            async for response in responses:
                message = packed_response(method.spec, response)
                if call.credit == 0 or self._sender.full:
                    await self._may_send(call, deadline, credit=True)
                call.credit -= 1
                self._message(number, message)
            self._fail(number, None)
        except asyncio.CancelledError:
            self._fail(number, _cancelled())
        except DecodeError:
            self._fail(number, method.undecodable())
        except Exception as exc:
            self._fail(number, exc)
        finally:
            if responses is not None:
                await responses.aclose()

    async def _may_send(self, call: table.Theirs, deadline: float, *, credit: bool) -> None:
        """Waits for credit and for room, until the call's deadline."""
        scope = asyncio.timeout(deadline - monotonic())
        try:
            async with scope:
                while credit and call.credit == 0:
                    waiter = self._without_credit[call.number] = self._loop.create_future()
                    await waiter
                await self._sender.room()
        except TimeoutError:
            raise deadline_passed(call.method) from None
        except OutboxClosed:
            raise self._link.error() from None
        finally:
            self._without_credit.pop(call.number, None)

    # ---- answering ------------------------------------------------------------------

    def _message(self, number: int, payload: bytes) -> None:
        crowd = len(self._served)
        size = len(payload)
        if size <= CHUNK_BYTES:
            frame = (MESSAGE, number, payload, False)
            self._sender.send_one(number, frame, size + FRAME_BYTES, crowd)
        else:
            self._sender.send(number, frames.message(number, payload), crowd)

    def _fail(self, number: int, error: BaseException | None) -> None:
        """Ends a call; ``error`` None: well."""
        if self._table.end(number):
            self._send_end(number, error)
            self._link.settle()

    def _send_end(self, number: int, error: BaseException | None) -> None:
        status = None if error is None else to_status(error)
        crowd = len(self._served)
        self._sender.send_one(number, (END, number, status), FRAME_BYTES, crowd)

    def _overdue(self, call: table.Theirs) -> None:
        error = deadline_passed(call.method)
        if _timeout_s(call) > self._assembly_s:
            error.message = f"the request did not come within {self._assembly_s:g} s"
        self._fail(call.number, error)


def _timeout_s(call: table.Theirs) -> float:
    timeout = call.timeout_ms / 1000
    if timeout > MAX_TIMEOUT_S:
        return MAX_TIMEOUT_S
    return timeout or _OWN_TIMEOUT_S


def _not_offered(method: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_OFFERED,
        f"this server does not offer {method} over the mux",
        metadata={"method": method},
    )


def _cancelled() -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the call was cancelled before its end"
    )
