"""Runs one attempt of a stream: writes its events to the ledger, the last of them terminal."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect.ledger import OVERHEAD, Key
from gymmesh_agent.collect.problems import cancelled, draining
from gymmesh_runtime.errors import MeshError, to_status, unforeseen

if TYPE_CHECKING:
    from gymmesh_agent.collect.stream import CollectStream

# With few rollouts under way, the end of one is sent at once, without waiting for others' events.
_FEW: Final = 8
# With more, so long for each of them, in seconds: what a batch saves then costs no throughput, as
# it takes longer to run as many.
_DELAY_PER_ATTEMPT_S: Final = 160e-6
_TERMINAL: Final = frozenset(("completed", "failed"))
# Methods of the class: a message looks through the names of its fields to find its own.
_KIND: Final = rollout_pb2.RolloutEvent.WhichOneof
_BYTES: Final = rollout_pb2.RolloutEvent.SerializeToString


class Runnable(Protocol):
    """What runs an attempt, or is about to."""

    over: asyncio.Future[None]
    """Done once the terminal event was sent, or the attempt ended without one."""

    waited_s: float
    """Seconds that it waited for a place."""

    def stop(self) -> None:
        """Nobody wants it any more: it ends, without a terminal event."""


class StreamedAttempt:
    """An attempt that was asked for on a stream, until it is over; a Start of its roster.

    Its methods are handed to what runs it as they are: an attempt is one object here.

    Attributes:
        asked: when it was asked for, in the clock's seconds.
        due: when it must end, in the clock's seconds; infinity: there is no such time.
        runs: what runs it; None before it has started, and once it is over.
        sent: how many events it has sent, which is the sequence of the last one.
        ended: whether there was a terminal one.
        cancelled: whether the collector has cancelled it.
    """

    __slots__ = ("_stream", "asked", "cancelled", "due", "ended", "key", "request", "runs", "sent")

    def __init__(
        self,
        stream: CollectStream,
        key: Key,
        request: agent_pb2.RunRolloutRequest,
        due: float = math.inf,
    ) -> None:
        self._stream = stream
        self.key = key
        self.request = request
        self.asked = time.monotonic()
        self.due = due
        self.runs: Runnable | None = None
        self.sent = 0
        self.ended = False
        self.cancelled = False

    def send(self, event: rollout_pb2.RolloutEvent) -> Awaitable[None] | None:
        """Take its next event over; a Send of gymmesh_agent.events."""
        stream = self._stream
        if stream.gone:
            return None
        line = stream.line
        ledger, data = stream.ledger, _BYTES(event)
        if _KIND(event, "event") in _TERMINAL:
            ledger.push(data, self.key)
            self.ended = True
            stream.roster.told(self.key)
            if line is not None:
                crowd = len(stream.roster.running)
                line.want(crowd * _DELAY_PER_ATTEMPT_S if crowd > _FEW else 0.0)
            return None
        # What `push` does, without the call: there are many of these to each of those above.
        ledger.events.append(data)
        ledger.size = size = ledger.size + len(data) + OVERHEAD
        self.sent += 1
        if line is not None and not line.wanted:
            line.want()
        return stream.room() if size >= ledger.max_bytes else None

    def end(self, over: asyncio.Future[None]) -> None:
        """It is over, well or not: see that its collector hears how it ended."""
        self.runs = None  # or the two would keep each other
        stream = self._stream
        if not self.ended and not stream.gone:
            # Every attempt ends with something that the collector hears.
            error = self._cause(over)
            if self.sent:
                self._fail(error)
            else:
                stream.refuse([self.key], error)
        stream.roster.over(self.key)
        stream.freed(stream)

    def _cause(self, over: asyncio.Future[None]) -> MeshError:
        """Why it ended without a terminal event."""
        name = self._stream.host.name
        fault = None if over.cancelled() else over.exception()
        if fault is not None:
            return unforeseen(fault, f"agent '{name}'")
        return cancelled() if self.cancelled else draining(name)

    def _fail(self, error: MeshError) -> None:
        name, sequence = self._stream.host.name, self.sent + 1
        boundary = rollout_pb2.BOUNDARY_CANCELLED if self.cancelled else rollout_pb2.BOUNDARY_AGENT
        failure = rollout_pb2.Failure(
            boundary=boundary, status=to_status(error), retry_safe=True, component=name
        )
        rollout_id, attempt = self.key
        self.send(
            rollout_pb2.RolloutEvent(
                rollout_id=rollout_id,
                attempt=attempt,
                sequence=sequence,
                record_time_unix_nano=time.time_ns(),
                failed=rollout_pb2.Failed(failure=failure, events=sequence),
            )
        )
