"""One collector's stream: its requests, and the messages to send to it. Pure.

Methods receive messages and events, and the time if it matters. Messages to send are collected in
`buffer` and `replies` until `outgoing` returns them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect_stream import errors
from gymmesh_agent.collect_stream.run_queue import QueuedAttempt, RunQueue
from gymmesh_agent.collect_stream.send_buffer import Key, SendBuffer
from gymmesh_runtime.contract import required_fields
from gymmesh_runtime.errors import MeshError, field_missing, queue_full, to_status
from gymmesh_runtime.wire import KIB

_MAX_EVENTS: Final = 1024  # of a message
_MAX_BYTES: Final = 256 * KIB
# How often a collector gets the load: when it changes, and in any case.
_LOAD_S: Final = 1.0
_HEARTBEAT_S: Final = 8.0
_TERMINAL: Final = frozenset(("completed", "failed"))
_MISSING: Final = required_fields(agent_pb2.RunRolloutRequest)


class ServedStream:
    """One stream, over any number of connections.

    Args:
        agent: the agent's name.
        max_waiting: the maximum number of waiting attempts.
        max_bytes: while the events have at least this many bytes, attempts wait.
        cursor: the first event has the cursor after this one.

    Attributes:
        queue: the stream's attempts.
        buffer: the stream's events.
        replies: messages to send that are not events.
        refusal: why no attempt is started any more; None: attempts are started.
    """

    def __init__(self, agent: str, max_waiting: int, max_bytes: int, *, cursor: int = 0) -> None:
        self.queue = RunQueue(max_waiting)
        self.buffer = SendBuffer(max_bytes, cursor=cursor)
        self.replies: list[agent_pb2.CollectResponse] = []
        self.refusal: MeshError | None = None
        self._agent = agent
        self._reported: tuple[float, tuple[int, int, int]] | None = None

    @property
    def settled(self) -> bool:
        """Whether no attempt waits or runs, and no event waits for anything but credit."""
        return self.queue.idle and self.buffer.unsent <= self.buffer.credit

    @property
    def empty(self) -> bool:
        """Whether no attempt waits or runs, and all events are acknowledged."""
        return self.queue.idle and not len(self.buffer)

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Resume after a cursor, on a new connection; False if that is impossible."""
        # What was to be sent on the last connection is said again where it still matters.
        self.replies.clear()
        return self.buffer.resume(last_cursor, credit)

    def receive(self, request: agent_pb2.CollectRequest, now: float) -> list[QueuedAttempt]:
        """Carry out a message, and return the running attempts that it cancels.

        Raises:
            MeshError: the message breaks the contract; the connection must end.
        """
        kind = request.WhichOneof("message")
        if kind == "starts":
            self._start(request.starts.starts, now)
            return []
        missing = required_fields(agent_pb2.CollectRequest)(request)
        if kind is None or missing is not None:
            reason = errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING
            raise errors.invalid_message(reason, missing or "message", "is not set")
        if kind == "credit":
            self.buffer.credit += request.credit.events
        elif kind == "ack":
            self.queue.forget(self.buffer.acknowledge(request.ack.cursor))
        elif kind == "cancels":
            return self._cancel([_key(one) for one in request.cancels.attempts])
        else:
            reason = errors_pb2.ERROR_REASON_FIELD_INVALID
            raise errors.invalid_message(reason, kind, "may be sent only once")
        return []

    def add_event(self, attempt: QueuedAttempt, event: rollout_pb2.RolloutEvent) -> None:
        """Add the next event of an attempt."""
        if event.WhichOneof("event") in _TERMINAL:
            attempt.ended = True
            self.queue.remember(attempt.key)
            self.buffer.add(event.SerializeToString(), attempt.key)
        else:
            self.buffer.add(event.SerializeToString())
        attempt.events += 1

    def finish(self, attempt: QueuedAttempt, error: MeshError) -> None:
        """An attempt has stopped running; `error` says why, if the attempt had no terminal
        event.
        """
        if not attempt.ended:
            # The collector gets an end of every attempt.
            if attempt.events:
                self.add_event(attempt, self._failed(attempt, error))
            else:
                self.refuse([attempt.key], error)
        attempt.ended = True
        self.queue.finish(attempt)

    def refuse(self, keys: Iterable[Key], error: MeshError) -> None:
        """Report that these attempts are not started.

        If a refusal is lost with its connection, no harm is done: the collector requests the
        attempts again.
        """
        refs = [agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1]) for key in keys]
        if refs:
            refused = agent_pb2.CollectStartRefused(attempts=refs, status=to_status(error))
            self.replies.append(agent_pb2.CollectResponse(start_refused=refused))

    def refuse_all(self, error: MeshError) -> None:
        """Start no further attempt: refuse the waiting ones and all future ones."""
        self.refusal = error
        self.refuse(self.queue.remove_all_waiting(), error)

    def refuse_overdue(self, now: float) -> None:
        """Refuse the attempts that waited until their deadline."""
        why = "the rollout's time ran out before an agent slot was free"
        self.refuse(self.queue.remove_overdue(now), errors.too_late(why))

    def report_load(self, now: float, target: int, capacity: int) -> None:
        """Report the agent's load, if it has changed or if much time has passed since the last
        report.
        """
        running, waiting = len(self.queue.running), len(self.queue.waiting)
        load = (running, waiting, target)
        reported_at, reported = self._reported or (-math.inf, (0, 0, capacity))
        silent_s = now - reported_at
        is_changed = load != reported and silent_s >= _LOAD_S
        if is_changed or (not self.queue.idle and silent_s >= _HEARTBEAT_S):
            self._reported = (now, load)
            message = agent_pb2.CollectLoad(running=running, waiting=waiting, target=target)
            self.replies.append(agent_pb2.CollectResponse(load=message))

    def outgoing(self) -> Iterator[agent_pb2.CollectResponse]:
        """The messages to send now. Later messages are sent the next time."""
        replies, self.replies = self.replies, []
        until = self.buffer.last
        while events := self.buffer.take(until, max_events=_MAX_EVENTS, max_bytes=_MAX_BYTES):
            yield agent_pb2.CollectResponse(events=batch_of(events, self.buffer.sent))
        yield from replies

    def _start(self, starts: Sequence[agent_pb2.CollectStart], now: float) -> None:
        full: list[Key] = []
        for start in starts:
            request = start.request
            key = _key(request)
            missing = _MISSING(request)
            if missing is not None:
                self.refuse([key], field_missing(missing, errors.RUN_ROLLOUT))
            elif self.refusal is not None:
                self.refuse([key], self.refusal)
            elif not self.queue.knows(key):
                due = now + start.timeout_ms / 1000 if start.timeout_ms else math.inf
                if not self.queue.add(QueuedAttempt(key, request, now, due)):
                    full.append(key)
        if full:
            waiting = len(self.queue.waiting)
            why = f"the queue of this collector is full (attempts that wait to start: {waiting})"
            self.refuse(full, queue_full(why, "collect", waiting))

    def _cancel(self, keys: Sequence[Key]) -> list[QueuedAttempt]:
        self.refuse([key for key in keys if self.queue.remove_waiting(key)], errors.cancelled())
        running = [self.queue.running[key] for key in keys if key in self.queue.running]
        for attempt in running:
            attempt.cancelled = True
        return running

    def _failed(self, attempt: QueuedAttempt, error: MeshError) -> rollout_pb2.RolloutEvent:
        """The terminal event of an attempt that sent events, but no terminal event of its own."""
        boundary = rollout_pb2.BOUNDARY_AGENT
        if attempt.cancelled:
            boundary = rollout_pb2.BOUNDARY_CANCELLED
        failure = rollout_pb2.Failure(
            boundary=boundary, status=to_status(error), retry_safe=True, component=self._agent
        )
        sequence = attempt.events + 1
        return rollout_pb2.RolloutEvent(
            rollout_id=attempt.key[0],
            attempt=attempt.key[1],
            sequence=sequence,
            record_time_unix_nano=time.time_ns(),
            failed=rollout_pb2.Failed(failure=failure, events=sequence),
        )


def batch_of(events: Iterable[bytes], cursor: int) -> agent_pb2.CollectEvents:
    """A batch of events, each a serialised RolloutEvent; the last event has the cursor."""
    batch = agent_pb2.CollectEvents(cursor=cursor)
    for event in events:
        batch.events.add().MergeFromString(event)
    return batch


def _key(one: agent_pb2.AttemptRef | agent_pb2.RunRolloutRequest) -> Key:
    return one.rollout_id, one.attempt or 1
