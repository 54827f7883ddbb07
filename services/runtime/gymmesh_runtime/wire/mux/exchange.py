"""One end of an Exchange stream: reads and writes batches, and ends all its calls.

Incoming frames go through the call table. The resulting events go to the calls that this side made
(calling.py) or serves (serving.py). An exchange ends

    at once, if the stream ends, a side breaks the protocol, or the exchange is cut:
        calls in flight end with the error
    when no call is in flight, if one side leaves (drain, retired address)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.errors import MeshError, from_status, unforeseen
from gymmesh_runtime.telemetry import LogLimit
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.calls import (
    Arrived,
    CallEnded,
    NoRoom,
    OutgoingCall,
    PeerLeaves,
    TableEvent,
)
from gymmesh_runtime.wire.mux.frames import Cancel, GoAway, pack, unpack
from gymmesh_runtime.wire.mux.sender import Sender
from gymmesh_runtime.wire.mux.serving import Admit, CallServer
from gymmesh_runtime.wire.mux.stream import ByteStream
from gymmesh_runtime.wire.mux.table import CallTable, TableLimits, Violation

_log = logging.getLogger("gymmesh.mux")
_warnings = LogLimit()

_LINGER_S: Final = 0.5
_STOP_S: Final = 5.0
_MOST_WORDS: Final = 300  # characters of a peer that are logged


class Exchange:
    """One end of an Exchange stream.

    ``opener``: whether this side opened the stream. ``peer``: the name of the other end in errors
    and logs. ``methods``: the methods served to the peer, by full name. ``budget``: how much memory
    unfinished messages may use, here and on other streams. ``admit``: admits the peer's calls;
    None: all. ``outlive_s``: for how many seconds served unary calls continue after the stream
    broke, so that a retry with the same request_id gets the answer.
    """

    def __init__(
        self,
        stream: ByteStream,
        *,
        opener: bool,
        peer: str,
        methods: Mapping[str, BoundMethod] | None = None,
        limits: TableLimits | None = None,
        budget: AssemblyBudget | None = None,
        admit: Admit | None = None,
        outlive_s: float = 0.0,
    ) -> None:
        limits = limits or TableLimits()
        self.peer = peer
        self.table = CallTable(opener=opener, limits=limits, budget=budget)
        self.sender = Sender()
        #: Called when no new call should be made, at the latest when the exchange has ended.
        self.on_leaving: Callable[[], None] = lambda: None
        #: Whether this side may begin a call.
        self.usable = True
        #: Whether it ended before its time.
        self.broken = False
        #: Whether the peer doesn't offer the mux, and has seen none of the calls.
        self.refused = False
        self._heard = False
        self._stream = stream
        self._opener = opener
        self._side = "client" if opener else "server"
        self._server = CallServer(
            self.table, self.sender, methods or {}, limits.assembly_s, admit, connection=self
        )
        self._outlive_s = outlive_s
        self._unusable = asyncio.Event()
        self._ending = False  # it ends when no call is in flight
        self._peer_done = False  # the peer sends no more
        self._over = asyncio.Event()
        self._why: Callable[[], MeshError] = self._broken_off
        self._detail = "the stream ended"

    @property
    def idle(self) -> bool:
        """Whether no call is in flight."""
        return self.table.outgoing == 0 and self.table.incoming == 0

    @property
    def peer_leaving(self) -> bool:
        """Whether the peer announced that it accepts no new calls."""
        return self.table.peer_leaving

    async def left(self) -> None:
        """Returns when no new call should be made, at the latest when the exchange has ended."""
        await self._unusable.wait()

    async def ended(self) -> None:
        """Returns when the exchange has ended."""
        await self._over.wait()

    def error(self) -> MeshError:
        """A new error that says why the exchange ended."""
        return self._why()

    async def run(self) -> None:
        """Carries frames until the exchange ends. By then every call in flight has ended."""
        self._reading = asyncio.create_task(self._read())
        tasks = {self._reading, asyncio.create_task(self._write())}
        streams = metrics.MUX_STREAMS.labels(self._side)
        streams.inc()
        try:
            await self._over.wait()
        except asyncio.CancelledError:
            # So gRPC ends a server's call whose connection is gone.
            if not (self.table.leaving or self.table.peer_leaving):
                self._break("the connection was closed")
            raise
        finally:
            streams.dec()
            if self.broken:
                metrics.MUX_BROKEN.labels(self._side).inc()
            self._over.set()
            self._leaves()
            self.sender.abort()
            made, served = self.table.close()
            for call in made:
                call.finish(self.error())
            for task in tasks:
                task.cancel()
            stopped = self._server.stop(served, self._outlive_s if self.broken else 0.0)
            await asyncio.wait(tasks | stopped, timeout=_STOP_S)

    def leave(self, reason: str) -> None:
        """Accepts no new calls and tells the peer so. The exchange ends when the calls in flight
        have ended.
        """
        if self.usable:
            self.usable, self._ending, self.table.leaving = False, True, True
            self._unusable.set()
            self.sender.send([GoAway(0, reason)])

    def cut(self, why: Callable[[], MeshError] | None = None) -> None:
        """Ends the exchange now. Its calls end with the error that ``why`` returns."""
        if why is not None and not self._over.is_set():
            self._why = why
        self._break("this process closed it")

    def cancel(self, call: OutgoingCall) -> bool:
        """Cancels a call of this side; returns whether the call was still open."""
        if not self.table.cancel(call.number):
            return False
        self.sender.forget(call.number)
        self.sender.send([Cancel(call.number)])
        return True

    # ---- reading --------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while (data := await self._stream.read()) is not None:
                self._receive(data)
        except (Violation, ValueError) as exc:
            self._warn(exc)
            self._break(f"the peer broke the mux protocol: {exc}")
        except Exception as exc:
            self._refuse(exc)
            self._break(_message_of(exc, "reading from the mux"))
        else:
            # A server still answers what it was asked; a client's answers are all there.
            self._peer_done = self._ending = True
            if not self._opener:
                self._close_when_idle()
            elif self.idle:
                self._over.set()
            else:
                self._break("the peer ended the stream")

    def _receive(self, data: bytes) -> None:
        """Takes a batch. Raises Violation and ValueError."""
        self._heard = True
        frames = unpack(data).frames
        if not frames:
            raise Violation("a batch had no frame")
        for frame in frames:
            event = self.table.receive(frame)
            if event is not None:
                self._handle(event)
        if self._ending:
            self._close_when_idle()

    def _handle(self, event: TableEvent) -> None:
        match event:
            case CallEnded(call, status):
                call.finish(None if status is None else from_status(status))
            case Arrived(call, payload):
                call.messages.append(payload)
                call.wake()
            case NoRoom(call, error):
                self.sender.forget(call.number)
                self.sender.send([Cancel(call.number)])
                call.finish(error)
            case PeerLeaves(reason):
                _log.info("%s accepts no new calls: %s", self.peer, reason[:_MOST_WORDS])
                self._ending = True
                self._leaves()
            case _:
                self._server.handle(event)

    # ---- writing --------------------------------------------------------------------

    async def _write(self) -> None:
        batches = metrics.MUX_BATCHES.labels(self._side)
        frames = metrics.MUX_FRAMES.labels(self._side)
        try:
            while batch := await self.sender.batch():
                batches.inc()
                frames.inc(len(batch))
                await self._stream.write(pack(batch))
                if self._ending:
                    self._close_when_idle()
            await self._stream.end()
        except Exception as exc:
            # The stream is over; reading tells why.
            await asyncio.wait({self._reading}, timeout=_LINGER_S)
            self._break(_message_of(exc, "writing to the mux"))
        else:
            if self._opener:  # the peer now ends the stream
                asyncio.get_running_loop().call_later(_STOP_S, self._over.set)
            else:
                self._over.set()

    # ---- ending ---------------------------------------------------------------------

    def _close_when_idle(self) -> None:
        """Ends it once no call is in flight; asked after each batch of one that is ending.

        What a call of either side ends with was a frame in such a batch.
        """
        if not self.idle:
            return
        if self._opener or self._peer_done:
            self.sender.close()
        else:
            # Calls that crossed our go-away are still answered that they came too late.
            asyncio.get_running_loop().call_later(_LINGER_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.idle:
            self.sender.close()

    def _leaves(self) -> None:
        self.usable = False
        self._unusable.set()
        self.on_leaving()

    def _break(self, detail: str) -> None:
        if not self._over.is_set():
            self._detail = detail.removeprefix(f"{self.peer}: ")
            self.broken = True
            self._over.set()

    def _refuse(self, exc: Exception) -> None:
        """Notes the refusal of a peer that doesn't offer the mux. A slow one's comes only here."""
        if self._opener and not self._heard and isinstance(exc, MeshError):
            self.refused = exc.reason == errors_pb2.ERROR_REASON_NOT_OFFERED

    def _broken_off(self) -> MeshError:
        return MeshError(
            errors_pb2.ERROR_REASON_MUX_BROKEN,
            f"{self.peer}: the connection broke during this call: {self._detail}",
            metadata={"address": self.peer},
        )

    def _warn(self, violation: Exception) -> None:
        """Log that the peer broke the protocol, at most once a second: any peer can do it, as often
        as it likes. `gymmesh_mux_broken_total` counts all of them.
        """
        held_back = _warnings.held_back(self._side)
        if held_back is not None:
            more = f" (more such errors since the last warning: {held_back})" if held_back else ""
            _log.warning(
                "%s broke the mux protocol, so the stream was closed: %s%s",
                self.peer,
                violation,
                more,
            )


def _message_of(exc: Exception, where: str) -> str:
    return (exc if isinstance(exc, MeshError) else unforeseen(exc, where)).message
