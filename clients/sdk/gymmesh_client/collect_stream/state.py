"""A collector's requests to one agent, their results, and which results are stored. Pure.

It owns no socket, task or clock. Every added attempt ends exactly once, through its `ended`: with
None after its terminal event, otherwise with the error that ended it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.agents import EventSink
from gymmesh_runtime.errors import MeshError, copy_of, from_status

Key = tuple[str, int]
"""An attempt: the rollout's id and the attempt's number."""

_TERMINAL: Final = frozenset(("completed", "failed"))


@dataclass(slots=True, eq=False)
class StreamedAttempt:
    """An attempt that was asked for.

    Attributes:
        key: the rollout's id and the attempt's number.
        request: what is asked for.
        due: when it must have ended, in the clock's seconds.
        sink: takes its events.
        ended: called with how it ended.
        held: whether its outcome counts as stored only when `stored` says so.
        sent: whether the agent may know of it.
        sequence: how many events came, which is the sequence of the last one.
        repeated: events up to this sequence may come again, and are dropped.
    """

    key: Key
    request: agent_pb2.RunRolloutRequest
    due: float
    sink: EventSink
    ended: Callable[[BaseException | None], None]
    held: bool = False
    sent: bool = False
    sequence: int = 0
    repeated: int = 0


@dataclass(slots=True)
class _Batch:
    """A batch that came: its cursor, and how many outcomes in it are not stored yet."""

    cursor: int
    unstored: int = 0


@dataclass(slots=True)
class ClientState:
    """All attempts of one stream.

    Attributes:
        in_flight: those that have not ended.
        received: the cursor of the last batch that came.
        acknowledged: the cursor up to which all outcomes are stored.
        stale: events that came for attempts that are not in flight any more.
        unwanted: attempts that ended here but not at the agent, where they are to be cancelled.
    """

    in_flight: dict[Key, StreamedAttempt] = field(default_factory=dict)
    received: int = 0
    acknowledged: int = 0
    stale: int = 0
    unwanted: list[Key] = field(default_factory=list)
    _batches: deque[_Batch] = field(default_factory=deque)
    _unstored: dict[Key, _Batch] = field(default_factory=dict)
    _abandoned: set[Key] = field(default_factory=set)

    def add(self, attempt: StreamedAttempt) -> None:
        """Ask for an attempt. Raises ROLLOUT_EXISTS when it is in flight already."""
        key = attempt.key
        if key in self.in_flight:
            raise MeshError(
                errors_pb2.ERROR_REASON_ROLLOUT_EXISTS,
                f"attempt {key[1]} of rollout {key[0]} is already running",
                metadata={"rollout_id": key[0], "attempt": str(key[1])},
            )
        self.in_flight[key] = attempt

    def abandon(self, key: Key) -> bool:
        """Give an attempt up; returns whether it must be cancelled at the agent."""
        attempt = self.in_flight.pop(key, None)
        if attempt is None or not attempt.sent:
            return False
        self._abandoned.add(key)
        return True

    def hello(self, stream_id: str, credit: int, contract_version: str) -> agent_pb2.CollectHello:
        """The hello that opens the next connection.

        Received events are in memory, so the stream resumes after them. Only acknowledgements
        report what is stored.
        """
        return agent_pb2.CollectHello(
            stream_id=stream_id,
            last_cursor=self.received,
            credit=credit,
            contract_version=contract_version,
        )

    def connected(self, *, resumed: bool, address: str) -> tuple[list[StreamedAttempt], list[Key]]:
        """A connection is open: what to start (again), and what to cancel (again).

        Starts and cancels may have been lost with the last connection; the agent knows those
        that were not. When it has lost the stream, all that it was asked for ends in an error.
        """
        if not resumed:
            self._lose(address)
        for attempt in self.in_flight.values():
            attempt.repeated = attempt.sequence
        return (
            [attempt for attempt in self.in_flight.values() if not attempt.sequence],
            sorted(self._abandoned),
        )

    def take(self, batch: agent_pb2.CollectEvents) -> int:
        """Hand a batch's events to the attempts' sinks; returns how many it had."""
        count = len(batch.events)
        if batch.cursor <= self.received:
            return count
        self.received = batch.cursor
        came = _Batch(batch.cursor)
        self._batches.append(came)
        for event in batch.events:
            # Copied, since each event of a message holds the memory of all of them.
            own = pb.RolloutEvent()
            own.CopyFrom(event)
            self._take_event(own, came)
        self._advance()
        return count

    def refused(self, refusal: agent_pb2.CollectStartRefused) -> None:
        """Starts were not taken."""
        for ref in refusal.attempts:
            key = key_of(ref)
            self._abandoned.discard(key)
            attempt = self.in_flight.pop(key, None)
            if attempt is not None:
                attempt.ended(from_status(refusal.status))

    def stored(self, key: Key) -> bool:
        """An outcome is on disk; returns whether it was one of this stream's that was not."""
        batch = self._unstored.pop(key, None)
        if batch is None:
            return False
        batch.unstored -= 1
        if not batch.unstored:
            self._advance()
        return True

    def fail(self, error: MeshError) -> None:
        """The stream is over: all that is in flight ends in this error."""
        failed = list(self.in_flight.values())
        self.in_flight.clear()
        self._abandoned.clear()
        for attempt in failed:
            attempt.ended(copy_of(error, {SENT: "true"} if attempt.sent else {}))

    def _take_event(self, event: pb.RolloutEvent, batch: _Batch) -> None:
        key = (event.rollout_id, event.attempt)
        is_last = event.WhichOneof("event") in _TERMINAL
        attempt = self.in_flight.get(key)
        if attempt is None:
            self.stale += 1
            if is_last:
                self._abandoned.discard(key)
            return
        if event.sequence <= attempt.repeated:
            return
        attempt.sequence += 1
        try:
            attempt.sink(event)
        except Exception as error:  # the attempt's own affair, and no other's
            del self.in_flight[key]
            if not is_last:
                self._abandoned.add(key)
                self.unwanted.append(key)
            attempt.ended(error)
            return
        if is_last:
            del self.in_flight[key]
            if attempt.held:
                batch.unstored += 1
                self._unstored[key] = batch
            attempt.ended(None)

    def _lose(self, address: str) -> None:
        """The agent knows nothing of what it was asked for."""
        self.received = self.acknowledged = 0
        self._batches.clear()
        self._unstored.clear()
        self._abandoned.clear()
        lost = [attempt for attempt in self.in_flight.values() if attempt.sent]
        for attempt in lost:
            del self.in_flight[attempt.key]
        for attempt in lost:
            attempt.ended(
                MeshError(
                    errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
                    f"the agent at {address} lost the rollout: it restarted, or was unreachable "
                    "for too long",
                    metadata={"address": address, SENT: "true"},
                )
            )

    def _advance(self) -> None:
        while self._batches and not self._batches[0].unstored:
            self.acknowledged = self._batches.popleft().cursor


SENT: Final = "sent"
"""Metadata of the error that ends an attempt whose agent may have heard of it, and may run it."""
TRIED_S: Final = "tried_s"
"""Metadata of the error that ends a lost stream: for how long it was tried to connect again."""


def tried_in_vain_s(error: MeshError) -> float:
    """For how long an agent had been tried in vain when this error came."""
    tried = error.metadata.get(TRIED_S, "")
    return float(tried) if tried.isascii() and tried.isdecimal() and len(tried) < 6 else 0.0


def key_of(one: agent_pb2.RunRolloutRequest | agent_pb2.AttemptRef) -> Key:
    """Which attempt a message means; zero counts as 1."""
    return one.rollout_id, one.attempt or 1
