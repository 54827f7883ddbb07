"""One end of a mux stream: reads and writes batches, and brings its calls to their end.

What arrives goes through the call table, which tells ``Caller`` (calls that this side
made) or ``Callee`` (calls that it serves) what happened. A link ends when

    the stream does, either side breaks the protocol or the link is cut:
        now; calls in flight end with the error
    it leaves (drain, retired address) or the other side does:
        when no call is in flight
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime import metrics
from gymmesh_runtime.binding import BoundMethod
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.one_per_second import OnePerSecond
from gymmesh_runtime.wire.batch import BatchLimits
from gymmesh_runtime.wire.mux.assembly import AssemblyBudget
from gymmesh_runtime.wire.mux.callee import Admit, Callee
from gymmesh_runtime.wire.mux.caller import Caller, Crowd
from gymmesh_runtime.wire.mux.frames import FRAME_BYTES, GO_AWAY, pack, unpack
from gymmesh_runtime.wire.mux.sender import BATCHING, Sender
from gymmesh_runtime.wire.mux.table import CallTable, Listener, TableLimits, Violation

_log = logging.getLogger("gymmesh.mux")
_warnings = OnePerSecond()

_LINGER_S: Final = 0.5
_STOP_S: Final = 5.0
_MOST_WORDS: Final = 300  # characters of a peer that are logged


class Pipe(Protocol):
    """A stream of batches to and from the peer. Failures raise MeshError."""

    async def read(self) -> bytes | None:
        """The next batch; None when the peer sends no more."""

    async def write(self, data: bytes) -> None:
        """Sends a batch, waiting while the peer does not read."""

    async def end(self) -> None:
        """Says that no more is sent."""


class Link:
    """One end of a mux stream.

    ``opener`` is the side that opened the stream; ``peer`` is what errors and
    logs call the other end; ``methods`` are those served to it, by full name; ``crowd``
    counts the calls made over this link and others; ``budget`` is what unfinished messages may
    take on this link and on others; ``admit`` lets the peer's calls in, None: all of them.
    """

    def __init__(
        self,
        pipe: Pipe,
        *,
        opener: bool,
        peer: str,
        methods: Mapping[str, BoundMethod] | None = None,
        limits: TableLimits | None = None,
        batching: BatchLimits = BATCHING,
        crowd: Crowd | None = None,
        budget: AssemblyBudget | None = None,
        admit: Admit | None = None,
    ) -> None:
        self.peer = peer
        limits = limits or TableLimits()
        self.table = CallTable(opener=opener, limits=limits, budget=budget)
        self.sender = Sender(batching)
        self.caller = Caller(self, crowd or Crowd())
        #: Called when no new call should be made, at the latest when the link has ended.
        self.on_leaving: Callable[[], None] = _nothing
        self._opener = opener
        self._side = "client" if opener else "server"
        self._pipe = pipe
        self._callee = Callee(self, methods or {}, limits.assembly_s, admit)
        #: Whether this side may begin a call.
        self.usable = True
        #: Whether it ends when no call is in flight.
        self.ending = False
        self._peer_done = False
        self._over = asyncio.Event()
        self._why: Callable[[], MeshError] | None = None
        self._detail = "the stream ended"
        self._is_broken = False

    @property
    def idle(self) -> bool:
        """Whether no call is in flight."""
        return self.table.ours == 0 and self.table.theirs == 0

    @property
    def broken(self) -> bool:
        """Whether it ended before its time."""
        return self._is_broken

    def error(self) -> MeshError:
        """A new error that says why the link ended."""
        if self._why is not None:
            return self._why()
        return MeshError(
            errors_pb2.ERROR_REASON_MUX_BROKEN,
            f"{self.peer}: the connection broke with this call in flight: {self._detail}",
            metadata={"address": self.peer},
        )

    async def run(self) -> None:
        """Carries frames until the link ends; every call in flight has ended then."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._write())}
        streams = metrics.MUX_STREAMS.labels(self._side)
        streams.inc()
        try:
            await self._over.wait()
        finally:
            streams.dec()
            if self.broken:
                metrics.MUX_BROKEN.labels(self._side).inc()
            self._over.set()
            self.usable, self.ending = False, True
            self.on_leaving()
            self.sender.abort()
            self.caller.fail_all()
            for task in tasks:
                task.cancel()
            tasks |= self._callee.stop()
            self.table.close()
            await asyncio.wait(tasks, timeout=_STOP_S)

    def leave(self, reason: str) -> None:
        """Takes no new calls and tells the peer so; ends when those in flight have."""
        if self.usable:
            self.usable, self.ending, self.table.leaving = False, True, True
            self.sender.send_one(0, (GO_AWAY, 0, reason), FRAME_BYTES)
            self.settle()

    def settle(self) -> None:
        """Ends a link that is ``ending`` when it is time; to be called when a call has ended."""
        if not self.ending or not self.idle:
            return
        if self._opener or self._peer_done:
            self.sender.close()
        else:
            # Calls that crossed our farewell are still told that they came too late.
            asyncio.get_running_loop().call_later(_LINGER_S, self._close_if_idle)

    def cut(self, why: Callable[[], MeshError] | None = None) -> None:
        """Ends the link now; its calls end with the error that ``why`` makes."""
        if not self._over.is_set():
            self._why = why
            self._is_broken = True
            self._over.set()

    def _close_if_idle(self) -> None:
        if self.idle:
            self.sender.close()

    async def _read(self) -> None:
        try:
            await self._receive_all()
        except (Violation, ValueError) as exc:
            self._warn(exc)
            self._break(f"the protocol was broken: {exc}")
        except Exception as exc:
            self._break(_said(exc, "reading from the mux"))
        else:
            # A server still answers what it was asked; a client's answers are all there.
            self._peer_done = self.ending = True
            if not self._opener:
                self.settle()
            elif self.idle:
                self._over.set()
            else:
                self._break("the peer ended the stream")

    async def _receive_all(self) -> None:
        read, receive = self._pipe.read, self.table.receive
        caller, callee = self.caller, self._callee
        told = Listener(
            arrived=caller.arrived,
            answered=caller.answered,
            ended=caller.ended,
            failed=caller.failed,
            receiving=callee.receiving,
            began=callee.began,
            refused=callee.refused,
            dropped=callee.dropped,
            credited=callee.credited,
            leaving=self._peer_leaves,
        )
        while (data := await read()) is not None:
            receive(unpack(data), told)

    async def _write(self) -> None:
        write, next_batch = self._pipe.write, self.sender.batch
        batches = metrics.MUX_BATCHES.labels(self._side)
        frames = metrics.MUX_FRAMES.labels(self._side)
        try:
            while batch := await next_batch():
                batches.inc()
                frames.inc(len(batch))
                await write(pack(batch))
            await self._pipe.end()
        except Exception as exc:
            self._break(_said(exc, "writing to the mux"))
        else:
            if self._opener:  # the peer now ends the stream
                asyncio.get_running_loop().call_later(_STOP_S, self._over.set)
            else:
                self._over.set()

    def _warn(self, violation: Exception) -> None:
        """Log that the peer broke the protocol, at most once a second: any peer can do it, as often
        as it likes. `gymmesh_mux_broken_total` counts all of them.
        """
        held_back = _warnings.held_back(self._side)
        if held_back is not None:
            more = f" ({held_back} more since the last such line)" if held_back else ""
            _log.warning(
                "%s broke the protocol of the mux, which is cut: %s%s", self.peer, violation, more
            )

    def _break(self, detail: str) -> None:
        if not self._over.is_set():
            self._detail = detail.removeprefix(f"{self.peer}: ")
            self._is_broken = True
            self._over.set()

    def _peer_leaves(self, reason: str) -> None:
        _log.info("%s takes no new calls: %s", self.peer, reason[:_MOST_WORDS])
        self.usable, self.ending = False, True
        self.on_leaving()
        self.settle()


def _said(exc: Exception, where: str) -> str:
    return (exc if isinstance(exc, MeshError) else unforeseen(exc, where)).message


def _nothing() -> None:
    """Nobody wants to be told."""
