"""One collector at this agent: its connection, and the tasks of its attempts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect_stream import errors, metrics
from gymmesh_agent.collect_stream.config import CollectConfig
from gymmesh_agent.collect_stream.run_queue import QueuedAttempt
from gymmesh_agent.collect_stream.stream import ServedStream
from gymmesh_agent.events import EventSink
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, unforeseen
from gymmesh_runtime.wire import SendTimer


class Host(Protocol):
    """What runs the attempts: the agent service."""

    name: str

    async def run_rollout(
        self,
        request: agent_pb2.RunRolloutRequest,
        context: CallContext,
        sink: EventSink,
        waited_s: float,
    ) -> None:
        """Run an attempt until it ends or is cancelled; its events go to `sink`. Raises
        MeshError.
        """


class CollectorConnection(SendTimer):
    """One connection of a collector.

    Attributes:
        error: why the connection ends; None: it ends normally.
        finishing: whether the collector has ended its side of the stream.
    """

    __slots__ = ("error", "finishing")

    def __init__(self, flush_s: float) -> None:
        super().__init__(flush_s)
        self.error: MeshError | None = None
        self.finishing = False

    def end(self, error: MeshError | None = None) -> None:
        """Send everything that waits to be sent, and end the connection."""
        if not self.closed:
            self.error = error
            self.close()


class CollectorClient:
    """A collector that this agent serves.

    Args:
        host: runs the collector's attempts.
        changed: called with the collector when an attempt has ended.
        cursor: the first event has the cursor after this one.

    Attributes:
        stream: the state of the stream.
        queue: the stream's attempts.
        connection: the current connection; None while disconnected.
        lost_at: when the collector disconnected, in the clock's seconds; None while connected.
        gone: whether the collector will not reconnect. Its events are then dropped.
    """

    def __init__(
        self,
        host: Host,
        config: CollectConfig,
        changed: Callable[[CollectorClient], None],
        *,
        cursor: int = 0,
    ) -> None:
        max_bytes = int(config.buffer_mb * 1024 * 1024)
        self.stream = ServedStream(host.name, config.queue, max_bytes, cursor=cursor)
        self.queue = self.stream.queue
        self.connection: CollectorConnection | None = None
        self.lost_at: float | None = None
        self.gone = False
        self._host = host
        self._changed = changed
        self._tasks: dict[QueuedAttempt, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._waits = metrics.COLLECT_WAIT_SECONDS.labels(host.name)

    def connect(self, connection: CollectorConnection) -> None:
        """Send on this connection from now on; an earlier connection ends."""
        if self.connection is not None:
            self.connection.end(
                errors.cancelled("another connection of the collector took over this stream")
            )
        self.connection, self.lost_at = connection, None
        self.send()

    def disconnect(self, connection: CollectorConnection) -> None:
        """A connection has ended."""
        if self.connection is connection:
            self.connection, self.lost_at = None, time.monotonic()

    def receive(self, request: agent_pb2.CollectRequest) -> None:
        """Carry out a message. Raises MeshError if the message breaks the contract."""
        self._cancel(self.stream.receive(request, time.monotonic()))
        if not self.stream.buffer.full:
            self._room.set()
        self.send()

    def send(self) -> None:
        """Send the waiting messages within the configured time."""
        if self.connection is None:
            return
        if self.stream.replies:
            self.connection.wake()
        elif self.stream.buffer.unsent:
            self.connection.send_within()

    def outgoing(self, connection: CollectorConnection) -> Iterator[agent_pb2.CollectResponse]:
        """The messages to send on a connection now; empty if it is not the latest connection."""
        if self.connection is connection:
            yield from self.stream.outgoing()

    def start_next(self) -> None:
        """Run the attempt that has waited longest."""
        attempt = self.queue.start_next()
        if attempt is not None:
            self._tasks[attempt] = asyncio.create_task(self._run(attempt))

    def stop(self) -> Iterable[asyncio.Task[None]]:
        """Cancel all running attempts; each still gets its terminal event."""
        self._cancel(self._tasks)
        return self._tasks.values()

    def abandon(self) -> None:
        """The collector will not reconnect: cancel all attempts and keep nothing."""
        self.gone = True
        self.queue.remove_all_waiting()
        if self.connection is not None:
            self.connection.end()
        self.stop()
        self._room.set()

    async def _run(self, attempt: QueuedAttempt) -> None:
        """Run an attempt to its end."""
        waited_s = time.monotonic() - attempt.asked_at
        self._waits.observe(waited_s, attempt.key[0])
        context = CallContext(errors.METHOD, None if attempt.due == math.inf else attempt.due)
        sink = partial(self._take, attempt)
        name = self._host.name
        error = errors.draining(name)
        try:
            await self._host.run_rollout(attempt.request, context, sink, waited_s)
        except asyncio.CancelledError:
            if attempt.cancelled:
                error = errors.cancelled()
        except MeshError as exc:
            error = exc
        except Exception as exc:
            error = unforeseen(exc, f"agent '{name}'")
        del self._tasks[attempt]
        if not self.gone:
            self.stream.finish(attempt, error)
            self.send()
        self._changed(self)

    def _take(
        self, attempt: QueuedAttempt, event: rollout_pb2.RolloutEvent
    ) -> asyncio.Event | None:
        """An EventSink for an attempt: adds the attempt's events to the stream."""
        if attempt.ended or self.gone:
            return None
        stream, connection = self.stream, self.connection
        stream.add_event(attempt, event)
        if connection is not None:
            if attempt.ended:
                connection.send_soon(len(self.queue.running))
            else:
                connection.send_within()
        if not stream.buffer.full:
            return None
        self._room.clear()
        return self._room

    def _cancel(self, attempts: Iterable[QueuedAttempt]) -> None:
        for attempt in attempts:
            task = self._tasks.get(attempt)
            if task is not None:
                # Not at once: a task that is cancelled before its first step has no end.
                asyncio.get_running_loop().call_soon(task.cancel)
