"""One collector's stream: its attempts and their events, over any number of connections."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_agent.collect.attempt import Runnable, StreamedAttempt
from gymmesh_agent.collect.config import CollectConfig
from gymmesh_agent.collect.ledger import Key, Ledger
from gymmesh_agent.collect.line import Line, packed_events
from gymmesh_agent.collect.problems import (
    METHOD,
    cancelled,
    late,
    missing,
    problem_with,
    queue_full,
    taken_over,
)
from gymmesh_agent.collect.roster import FULL, Roster, Whereabouts
from gymmesh_agent.events import Send
from gymmesh_runtime import metrics
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.contract import required_fields
from gymmesh_runtime.errors import MeshError, to_status, unforeseen
from gymmesh_runtime.wire.batch import KIB

_MAX_EVENTS: Final = 1024  # of a message
_MAX_BYTES: Final = 256 * KIB
_LACKS: Final = required_fields(agent_pb2.RunRolloutRequest)


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
        #: Runs the attempts.
        self.host = host
        self.roster: Roster[StreamedAttempt] = Roster(config.queue)
        #: Its events.
        self.ledger = Ledger(int(config.buffer_mb * 1024 * 1024), cursor=cursor)
        #: The connection; None while the collector is away.
        self.line: Line | None = None
        #: Whether nobody will come for its events any more.
        self.gone = False
        #: To be called when a place is free, or a start waits.
        self.freed = freed
        self._waits = metrics.COLLECT_WAIT_SECONDS.labels(host.name)
        self._room: list[asyncio.Future[None]] = []
        self._refusal: MeshError | None = None

    @property
    def settled(self) -> bool:
        """Whether no attempt waits or runs, and no event waits for credit."""
        return self.roster.idle and self.ledger.unsent <= self.ledger.credit

    @property
    def empty(self) -> bool:
        """Whether no attempt waits or runs, and all events are acknowledged."""
        return self.roster.idle and not len(self.ledger)

    def resume(self, last_cursor: int, credit: int) -> bool:
        """Go on after a cursor; False when that cannot be."""
        return self.ledger.resume(last_cursor, credit)

    def connect(self, line: Line) -> None:
        """Send on this connection from now on; an earlier one ends."""
        if self.line is not None:
            self.line.end(taken_over())
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
        ledger, until = self.ledger, self.ledger.last
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
        lack = required_fields(agent_pb2.CollectRequest)(request)
        if kind is None or lack is not None:
            field = lack or "message"
            raise problem_with(errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING, field, "is not set")
        if kind == "credit":
            self.ledger.credit += request.credit.events
            self._wake()
        elif kind == "ack":
            self.roster.forget(self.ledger.acknowledge(request.ack.cursor))
            self._make_room()
        elif kind == "cancels":
            self._cancel([_key(one) for one in request.cancels.attempts])
        else:
            raise problem_with(errors_pb2.ERROR_REASON_FIELD_INVALID, kind, "comes only once")

    def launch(self, attempt: StreamedAttempt) -> None:
        """Run an attempt whose turn it is."""
        due = attempt.due
        context = CallContext(METHOD, None if due == math.inf else due)
        try:
            runs = self.host.start(attempt.request, context, attempt.send)
        except Exception as exc:
            error = exc if isinstance(exc, MeshError) else unforeseen(exc, "starting an attempt")
            self.roster.over(attempt.key)
            self.refuse([attempt.key], error)
            return
        attempt.runs = runs
        runs.waited_s = waited_s = time.monotonic() - attempt.asked
        self._waits.observe(waited_s, attempt.key[0])
        runs.over.add_done_callback(attempt.end)

    def room(self) -> asyncio.Future[None]:
        """What whoever makes events waits for while too many are held."""
        room = asyncio.get_running_loop().create_future()
        self._room.append(room)
        return room

    def sweep(self, now: float) -> None:
        """Refuse those that waited until their time was over."""
        overdue = self.roster.overdue(now)
        if overdue:
            self.refuse(overdue, late())

    def refuse_all(self, error: MeshError) -> None:
        """Start nothing any more: not what waits, nor what may come."""
        self._refusal = error
        waiting = self.roster.clear_waiting()
        if waiting:
            self.refuse(waiting, error)

    def stop(self) -> list[asyncio.Future[None]]:
        """Stop all that runs; each still gets its terminal event."""
        running = [one.runs for one in self.roster.running.values() if one.runs is not None]
        for one in running:
            one.stop()
        return [one.over for one in running]

    def abandon(self) -> None:
        """Nobody will come back: cancel all, keep nothing."""
        self.gone = True
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
            request, timeout_ms = start.request, start.timeout_ms
            key = (request.rollout_id, request.attempt or 1)
            lack = _LACKS(request)
            if lack is not None:
                self.refuse([key], missing(lack))
            elif self._refusal is not None:
                self.refuse([key], self._refusal)
            else:
                due = now + timeout_ms / 1000 if timeout_ms else math.inf
                if self.roster.enter(StreamedAttempt(self, key, request, due)) is FULL:
                    full.append(key)
        if full:
            self.refuse(full, queue_full(len(self.roster.waiting)))
        self.freed(self)

    def _cancel(self, keys: list[Key]) -> None:
        waited = []
        for key in keys:
            where = self.roster.cancel(key)
            if where is Whereabouts.RUNS:
                running = self.roster.running[key]
                running.cancelled = True
                if running.runs is not None:
                    running.runs.stop()
            elif where is Whereabouts.WAITED:
                waited.append(key)
        if waited:
            self.refuse(waited, cancelled())

    def refuse(self, keys: Sequence[Key], error: MeshError) -> None:
        """Say that these attempts are not started."""
        # A refusal that is lost with its connection is no loss: the collector asks again.
        if self.line is None:
            return
        refs = [agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1]) for key in keys]
        refused = agent_pb2.CollectStartRefused(attempts=refs, status=to_status(error))
        self.line.say(agent_pb2.CollectResponse(start_refused=refused))

    def _wake(self) -> None:
        """Events may have become free to leave."""
        if self.line is not None and self.ledger.unsent:
            self.line.want()

    def _make_room(self) -> None:
        if self._room and (self.gone or not self.ledger.full):
            waiting, self._room = self._room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)


def _key(one: agent_pb2.AttemptRef) -> Key:
    return one.rollout_id, one.attempt or 1
