"""One collector's stream: its attempts and their events, over any number of connections."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.ledger import Key, Ledger
from gymmesh_agent.collect.line import Line, packed_events
from gymmesh_agent.collect.roster import Entrance, Roster, Runnable, Start, Whereabouts
from gymmesh_agent.events import Send
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import methods_of, required_fields
from gymmesh_runtime.errors import MeshError, to_status, unforeseen
from gymmesh_runtime.wire.batch import KIB

METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"

# With few rollouts under way, whoever waits for one to end should not wait for others' events.
_FEW: Final = 8
# With more, so long for each of them, in seconds: what a batch saves then costs no throughput, as
# it takes longer to run as many.
_DELAY_PER_ATTEMPT_S: Final = 160e-6
_MAX_EVENTS: Final = 1024  # of a message
_MAX_BYTES: Final = 256 * KIB
_TERMINAL: Final = frozenset(("completed", "failed"))
# Methods of the class: a message looks through the names of its fields to find its own.
_KIND: Final = rollout_pb2.RolloutEvent.WhichOneof
_BYTES: Final = rollout_pb2.RolloutEvent.SerializeToString
_RETRY_S: Final = 1.0
_MISSING: Final = required_fields(agent_pb2.RunRolloutRequest)
_RUN_ROLLOUT: Final = methods_of("gymmesh.agent.v1.AgentService")["RunRollout"]


class Host(Protocol):
    """What a stream needs of its agent service."""

    name: str

    def start(
        self, request: agent_pb2.RunRolloutRequest, context: CallContext, send: Send
    ) -> Runnable:
        """Start an attempt as RunRollout would; MeshError when there is none to speak of."""


class CollectStream:
    """One stream.

    Args:
        host: runs the attempts.
        freed: called with the stream when a place is free, or a start waits.
        cursor: the first event has the cursor after this one.
    """

    def __init__(
        self,
        host: Host,
        config: CollectConfig,
        freed: Callable[[CollectStream], None],
        *,
        cursor: int = 0,
    ) -> None:
        self.roster = Roster(config.queue)
        #: The connection; None while the collector is away.
        self.line: Line | None = None
        self._host = host
        self._freed = freed
        self._ledger = Ledger(int(config.buffer_mb * 1024 * 1024), cursor=cursor)
        self._room: list[asyncio.Future[None]] = []
        self._refusal: MeshError | None = None
        self._gone = False

    @property
    def settled(self) -> bool:
        """Whether no attempt waits or runs, and no event waits for credit."""
        return self.roster.idle and self._ledger.unsent <= self._ledger.credit

    @property
    def empty(self) -> bool:
        """Whether no attempt waits or runs, and all events are acknowledged."""
        return self.roster.idle and not len(self._ledger)

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Go on after a cursor; False when that cannot be."""
        return self._ledger.resume(last_cursor, credit)

    def connect(self, line: Line) -> None:
        """Send on this connection from now on; an earlier one ends."""
        if self.line is not None:
            self.line.end(
                MeshError(
                    errors_pb2.ERROR_REASON_CALLER_CANCELLED,
                    "another connection has taken this stream over",
                )
            )
        self.line = line
        self._wake()

    def disconnect(self, line: Line) -> bool:
        """A connection is gone; returns whether the stream has none any more."""
        if self.line is line:
            self.line = None
        return self.line is None

    def leaving(self, line: Line) -> Iterator[agent_pb2.CollectResponse | bytes]:
        """What is to leave on a connection now; only the last one has the events.

        What happens while this is being sent leaves the next time.
        """
        ledger, until = self._ledger, self._ledger.last
        while self.line is line:
            events = ledger.take(until, max_events=_MAX_EVENTS, max_bytes=_MAX_BYTES)
            if not events:
                break
            yield packed_events(events, ledger.at)
        yield from line.said()

    def receive(self, request: agent_pb2.CollectRequest) -> None:
        """Do what the collector says.

        Raises:
            MeshError: it says what the contract does not allow; the connection is to end.
        """
        kind = request.WhichOneof("message")
        if kind == "starts":
            self._start(request.starts.starts)
            return
        missing = required_fields(agent_pb2.CollectRequest)(request)
        if kind is None or missing is not None:
            field = missing or "message"
            raise _problem(errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING, field, "is not set")
        if kind == "credit":
            self._ledger.credit += request.credit.events
            self._wake()
        elif kind == "ack":
            self.roster.forget(self._ledger.acknowledge(request.ack.cursor))
            self._make_room()
        elif kind == "cancels":
            self._cancel([_key(one) for one in request.cancels.attempts])
        else:
            raise _problem(errors_pb2.ERROR_REASON_FIELD_INVALID, kind, "comes only once")

    def launch(self, start: Start) -> None:
        """Run an attempt whose turn it is."""
        context = CallContext(METHOD, None if start.due == math.inf else start.due)
        try:
            attempt = self._host.start(start.request, context, partial(self._send, start))
        except Exception as exc:
            error = exc if isinstance(exc, MeshError) else unforeseen(exc, "starting an attempt")
            self.roster.over(start.key)
            self._refuse([start.key], error)
            return
        start.attempt = attempt
        attempt.over.add_done_callback(partial(self._over, start))

    def sweep(self, now: float) -> None:
        """Refuse those that waited until their time was over."""
        late = self.roster.overdue(now)
        if late:
            error = MeshError(
                errors_pb2.ERROR_REASON_DEADLINE_PASSED,
                "the time of the rollout was over before its turn came",
                metadata={"method": METHOD},
            )
            self._refuse(late, error)

    def refuse_all(self, error: MeshError) -> None:
        """Start nothing any more: not what waits, nor what may come."""
        self._refusal = error
        waiting = self.roster.clear_waiting()
        if waiting:
            self._refuse(waiting, error)

    def stop(self) -> list[asyncio.Future[None]]:
        """Stop all that runs; each still gets its terminal event."""
        running = self.roster.running.values()
        attempts = [one.attempt for one in running if one.attempt is not None]
        for attempt in attempts:
            attempt.stop()
        return [attempt.over for attempt in attempts]

    def abandon(self) -> None:
        """Nobody will come back: cancel all, keep nothing."""
        self._gone = True
        self.roster.clear_waiting()
        self.stop()
        self._make_room()

    def say_load(self, target: int) -> None:
        """Tell how busy the agent is."""
        if self.line is not None:
            load = agent_pb2.CollectLoad(
                running=len(self.roster.running), waiting=len(self.roster.waiting), target=target
            )
            self.line.say(agent_pb2.CollectResponse(load=load))

    def _start(self, starts: Sequence[agent_pb2.CollectStart]) -> None:
        now = time.monotonic()
        full: list[Key] = []
        for start in starts:
            request = start.request
            key = _key(request)
            missing = _MISSING(request)
            if missing is not None:
                self._refuse([key], _missing(missing))
            elif self._refusal is not None:
                self._refuse([key], self._refusal)
            else:
                due = now + start.timeout_ms / 1000 if start.timeout_ms else math.inf
                if self.roster.enter(Start(key, request, due)) is Entrance.FULL:
                    full.append(key)
        if full:
            self._refuse(full, _queue_full(len(self.roster.waiting)))
        self._freed(self)

    def _cancel(self, keys: list[Key]) -> None:
        waited = []
        for key in keys:
            where = self.roster.cancel(key)
            if where is Whereabouts.RUNS:
                running = self.roster.running[key]
                running.cancelled = True
                if running.attempt is not None:
                    running.attempt.stop()
            elif where is Whereabouts.WAITED:
                waited.append(key)
        if waited:
            self._refuse(waited, _cancelled())

    def _send(self, running: Start, event: rollout_pb2.RolloutEvent) -> Awaitable[None] | None:
        """Take an attempt's event over; with the attempt, a Send of gymmesh_agent.events."""
        if self._gone:
            return None
        line = self.line
        if _KIND(event, "event") in _TERMINAL:
            self._ledger.push(_BYTES(event), running.key)
            running.ended = True
            self.roster.told(running.key)
            if line is not None:
                crowd = len(self.roster.running)
                line.want(crowd * _DELAY_PER_ATTEMPT_S if crowd > _FEW else 0.0)
            return None
        full = self._ledger.push(_BYTES(event))
        running.sent += 1
        if line is not None and not line.wanted:
            line.want()
        if not full:
            return None
        room = asyncio.get_running_loop().create_future()
        self._room.append(room)
        return room

    def _over(self, running: Start, over: asyncio.Future[None]) -> None:
        key = running.key
        running.attempt = None  # or the two would keep each other
        if not running.ended and not self._gone:
            # Every attempt ends with something that the collector hears.
            error = self._cause(running, over)
            if running.sent:
                self._fail(running, running.sent + 1, error)
            else:
                self._refuse([key], error)
        self.roster.over(key)
        self._freed(self)

    def _cause(self, running: Start, over: asyncio.Future[None]) -> MeshError:
        """Why an attempt ended without a terminal event."""
        fault = None if over.cancelled() else over.exception()
        if fault is not None:
            return unforeseen(fault, f"agent '{self._host.name}'")
        return _cancelled() if running.cancelled else _draining(self._host.name)

    def _fail(self, running: Start, sequence: int, error: MeshError) -> None:
        boundary = (
            rollout_pb2.BOUNDARY_CANCELLED if running.cancelled else rollout_pb2.BOUNDARY_AGENT
        )
        failure = rollout_pb2.Failure(
            boundary=boundary,
            status=to_status(error),
            retry_safe=True,
            component=self._host.name,
        )
        rollout_id, attempt = running.key
        event = rollout_pb2.RolloutEvent(
            rollout_id=rollout_id,
            attempt=attempt,
            sequence=sequence,
            record_time_unix_nano=time.time_ns(),
            failed=rollout_pb2.Failed(failure=failure, events=sequence),
        )
        self._send(running, event)

    def _refuse(self, keys: Sequence[Key], error: MeshError) -> None:
        # A refusal that is lost with its connection is no loss: the collector asks again.
        if self.line is None:
            return
        refs = [agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1]) for key in keys]
        refused = agent_pb2.CollectStartRefused(attempts=refs, status=to_status(error))
        self.line.say(agent_pb2.CollectResponse(start_refused=refused))

    def _wake(self) -> None:
        """Events may have become free to leave."""
        if self.line is not None and self._ledger.unsent:
            self.line.want()

    def _make_room(self) -> None:
        if self._room and (self._gone or not self._ledger.full):
            waiting, self._room = self._room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)


def _key(one: agent_pb2.RunRolloutRequest | agent_pb2.AttemptRef) -> Key:
    return one.rollout_id, one.attempt or 1


def _problem(reason: Any, field: str, problem: str) -> MeshError:
    metadata = {"field": field, "method": METHOD}
    return MeshError(reason, f"the message's field '{field}' {problem}", metadata=metadata)


def _missing(field: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
        f"{_RUN_ROLLOUT.full_name} needs the field '{field}'; set it and call again",
        metadata={"field": field, "method": _RUN_ROLLOUT.full_name},
    )


def _queue_full(waiting: int) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_QUEUE_FULL,
        f"{waiting} starts of this collector wait already",
        metadata={"queue": "collect", "limit": str(waiting)},
        retry_after_s=_RETRY_S,
    )


def _cancelled() -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_CALLER_CANCELLED, "the collector cancelled it")


def _draining(name: str) -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, f"agent '{name}' is shutting down")
