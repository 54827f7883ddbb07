"""The events of one attempt: numbered, in order, and with one terminal event at the end."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.loop import Completion
from gymmesh_runtime.errors import MeshError

_BOUND = 256

EventSink = Callable[[rollout_pb2.RolloutEvent], asyncio.Event | None]
"""Receives an event, which is never changed afterwards; raises nothing. If it returns an
asyncio.Event, the sender waits for it before it sends more. So a slow reader slows a rollout
down and does not fill the memory.
"""


class EventBounds(NamedTuple):
    """How many events an attempt may have, and how many serialised bytes.

    The event that exceeds a bound is still sent, so that its counts are recorded. So is the
    terminal event.
    """

    events: int = 500_000
    bytes: int = 256_000_000


DEFAULT_BOUNDS: Final = EventBounds()


class EventStream:
    """Numbers events and passes them on in order; keeps the stream law of rollout.proto.

    An event has its place as soon as `emit` is called, even if `emit` then waits. Events are
    written in place, because a message that is passed to another message's constructor is
    serialised to copy it.

    Attributes:
        count: the number of events so far. The rollout's duration is measured from the first event.
        closed: whether no event can follow.
    """

    __slots__ = (
        "_attempt",
        "_began",
        "_bounds",
        "_bytes",
        "_early",
        "_exceeded",
        "_rollout_id",
        "_sink",
        "closed",
        "count",
    )

    def __init__(
        self, rollout_id: str, attempt: int, sink: EventSink, bounds: EventBounds = DEFAULT_BOUNDS
    ) -> None:
        self._rollout_id = rollout_id
        self._attempt = attempt
        self._sink = sink
        self._began = 0.0
        self._bounds = bounds
        self._bytes = 0
        self._early: list[rollout_pb2.RolloutEvent] = []
        self._exceeded: tuple[str, int, str] | None = None
        self.count = 0
        self.closed = False

    async def emit(self, event: rollout_pb2.RolloutEvent) -> None:
        """Send an event; ids, sequence and time are filled in.

        Raises:
            RuntimeError: the attempt has ended (a task of an agent outlived its rollout).
            MeshError: ATTEMPT_TOO_LARGE: this event, which was sent, exceeds a bound.
        """
        room = self._put(event)
        self._measure(event)
        self._send_early()
        self.check()
        if room is not None:
            await room.wait()

    def note(self, event: rollout_pb2.RolloutEvent) -> None:
        """Send an event without waiting. An event after the attempt's end is dropped.

        Events that arrive before the attempt's first event are sent after it.
        """
        if self.closed:
            return
        if not self.count:
            self._early.append(event)
            return
        self._put(event)
        self._measure(event)

    async def verified(self, verified: rollout_pb2.Verified, took_s: float) -> None:
        """Send the verdict, which took this many seconds. The verdict does not count towards a
        bound.
        """
        event = rollout_pb2.RolloutEvent(verified=verified)
        event.verified.timings.total_us = int(took_s * 1e6)
        room = self._put(event)
        if room is not None:
            await room.wait()

    def completed(self, completion: Completion, counts: rollout_pb2.Counts | None) -> None:
        """Send the terminal event of a completed rollout; `counts`: the counts, if a session was
        opened.
        """
        event = rollout_pb2.RolloutEvent()
        completed = event.completed
        completed.stop_reason = completion.reason
        completed.stop_detail = completion.detail
        if counts is not None:
            completed.counts.CopyFrom(counts)
        completed.events = self.count + 1
        completed.duration_us = self._duration_us()
        self._put(event)
        self.closed = True

    def failed(
        self,
        failure: rollout_pb2.Failure,
        counts: rollout_pb2.Counts | None,
        started: Callable[[], rollout_pb2.RolloutEvent],
    ) -> None:
        """Send the terminal event of a failed rollout.

        The stream law requires `started` first. If `started` was not sent, the argument `started`
        makes one from what is known.
        """
        if not self.count:
            self._put(started())
            self._send_early()
        failed = rollout_pb2.Failed(
            failure=failure,
            counts=counts,
            events=self.count + 1,
            duration_us=self._duration_us(),
        )
        self._put(rollout_pb2.RolloutEvent(failed=failed))
        self.closed = True

    def close(self) -> None:
        """End the stream, with or without a terminal event."""
        self.closed = True

    def discard(self) -> None:
        """Send nothing from now on; further events are dropped."""
        self._sink = _nowhere

    def check(self) -> None:
        """Raises ATTEMPT_TOO_LARGE if an event exceeded a bound: no step may follow."""
        if self._exceeded is not None:
            raise _too_large(*self._exceeded)

    def _send_early(self) -> None:
        """Send the events that arrived before the first event, which was sent now."""
        if not self._early:
            return
        early, self._early = self._early, []
        for one in early:
            self.note(one)

    def _measure(self, event: rollout_pb2.RolloutEvent) -> None:
        self._bytes += event.ByteSize()
        if self.count > self._bounds.events:
            self._exceeded = ("max_events", self._bounds.events, "events")
        elif self._bytes > self._bounds.bytes:
            self._exceeded = ("max_event_bytes", self._bounds.bytes, "bytes of events")

    def _put(self, event: rollout_pb2.RolloutEvent) -> asyncio.Event | None:
        if self.closed:
            raise RuntimeError("the rollout has ended, so no further event can be sent")
        if not self.count:
            self._began = time.monotonic()
        self.count += 1
        event.rollout_id = self._rollout_id
        event.attempt = self._attempt
        event.sequence = self.count
        event.record_time_unix_nano = time.time_ns()
        return self._sink(event)

    def _duration_us(self) -> int:
        return int((time.monotonic() - self._began) * 1e6)


def _too_large(limit: str, most: int, what: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_ATTEMPT_TOO_LARGE,
        f"the attempt has more {what} than {limit} allows ({most}); raise {limit} of the agent",
        metadata={"limit": limit, "most": str(most)},
    )


def _nowhere(event: rollout_pb2.RolloutEvent) -> None:
    pass


class EventQueue:
    """Events on their way to one reader.

    `put` is an `EventSink`: with more than 256 unread events, it returns an event to wait for.
    """

    def __init__(self) -> None:
        self._unread: deque[rollout_pb2.RolloutEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    def put(self, event: rollout_pb2.RolloutEvent) -> asyncio.Event | None:
        """Add an event."""
        self._unread.append(event)
        self._wake.set()
        if len(self._unread) < _BOUND or self._closed:
            return None
        self._room.clear()
        return self._room

    def close(self) -> None:
        """No further event will be added."""
        self._closed = True
        self._room.set()
        self._wake.set()

    async def next(self) -> rollout_pb2.RolloutEvent | None:
        """The next event, or None if none is left and none will be added."""
        while not self._unread:
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        event = self._unread.popleft()
        if len(self._unread) < _BOUND:
            self._room.set()
        return event
