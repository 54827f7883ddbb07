"""What a collector asked an agent for, what came of it, and what is stored. Pure.

The book owns no socket, task or clock. Every attempt that is entered leaves exactly once, through
its `done`: with None after its terminal event, else with the error that ended it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_runtime.errors import MeshError, from_status
from gymmesh_runtime.wire.twins import EventBatch, PackedRequest

Key = tuple[str, int]
"""An attempt: the rollout's id and the attempt's number."""

EventSink = Callable[[pb.RolloutEvent], None]
"""Takes an attempt's next event. What it raises ends the attempt, and is raised by `run`."""

_TERMINAL: Final = frozenset(("completed", "failed"))
# Of the class: a message looks through the names of its fields to find its own methods.
_KIND: Final = pb.RolloutEvent.WhichOneof
_EVENT: Final = pb.RolloutEvent.FromString


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of a stream.

    Attributes:
        credit: the most events on their way from the agent.
        hello_s: seconds within which an agent must answer hello.
        silence_s: seconds without a message, while attempts are in flight, after which the
            connection is taken for dead.
        reconnect_s: seconds after which a lost agent is given up, and all in flight with it.
        backoff_s: the first wait before connecting again; it doubles up to `backoff_cap_s`.
        backoff_cap_s: the longest of these waits.
        acknowledge_s: seconds for which an acknowledgement waits for others.
        flush_s: the longest that a start waits for others, in seconds; less when fewer than some
            hundred attempts are in flight.
    """

    credit: int = 8192
    hello_s: float = 10.0
    silence_s: float = 45.0
    reconnect_s: float = 30.0
    backoff_s: float = 0.1
    backoff_cap_s: float = 2.0
    acknowledge_s: float = 0.1
    flush_s: float = 0.02


@dataclass(slots=True, eq=False)
class Asked:
    """An attempt that was asked for.

    Attributes:
        key: which attempt it is.
        request: its RunRolloutRequest, in its bytes.
        due: when it must have ended, in the clock's seconds.
        held: whether its outcome counts as stored only when that is said.
        sent: whether the agent may have heard of it.
        sequence: how many events came, which is the sequence of the last one.
        repeated: events up to this sequence may come again, and are dropped.
    """

    key: Key
    request: bytes
    due: float
    sink: EventSink
    done: Callable[[BaseException | None], None]
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
class Book:
    """All attempts of one stream.

    Attributes:
        received: the cursor of the last batch that came.
        acknowledged: the cursor up to which all outcomes are stored.
        stale: events that came for attempts that nobody waits for any more.
        unwanted: attempts that ended here though not at the agent: it must be told.
    """

    in_flight: dict[Key, Asked] = field(default_factory=dict)
    received: int = 0
    acknowledged: int = 0
    stale: int = 0
    unwanted: list[Key] = field(default_factory=list)
    _batches: deque[_Batch] = field(default_factory=deque)
    _unstored: dict[Key, _Batch] = field(default_factory=dict)
    _abandoned: set[Key] = field(default_factory=set)

    def enter(self, asked: Asked) -> None:
        """Ask for an attempt.

        Raises:
            MeshError: ROLLOUT_EXISTS; it is in flight already.
        """
        key = asked.key
        if key in self.in_flight:
            raise MeshError(
                errors_pb2.ERROR_REASON_ROLLOUT_EXISTS,
                f"attempt {key[1]} of rollout {key[0]} is in flight already",
                metadata={"rollout_id": key[0], "attempt": str(key[1])},
            )
        self.in_flight[key] = asked

    def abandon(self, key: Key) -> bool:
        """Nobody waits for it any more; returns whether the agent must be told."""
        asked = self.in_flight.pop(key, None)
        if asked is None or not asked.sent:
            return False
        self._abandoned.add(key)
        return True

    def hello(self, stream_id: str, credit: int, contract_version: str) -> agent_pb2.CollectHello:
        """What opens the next connection.

        What came is held in memory, so the stream goes on after it; what is stored is said by
        acknowledgements alone.
        """
        return agent_pb2.CollectHello(
            stream_id=stream_id,
            last_cursor=self.received,
            credit=credit,
            contract_version=contract_version,
        )

    def welcomed(self, *, resumed: bool, address: str) -> tuple[list[Asked], list[Key]]:
        """A connection is open: what to start (again), and what to cancel (again).

        Starts and cancels may have been lost with the last connection; the agent knows those
        that were not. When it has lost the stream, all it was asked for ends in an error.
        """
        if not resumed:
            self._lose(address)
        for asked in self.in_flight.values():
            asked.repeated = asked.sequence
        return (
            [asked for asked in self.in_flight.values() if not asked.sequence],
            sorted(self._abandoned),
        )

    def take(self, batch: EventBatch) -> int:
        """Hand a batch's events to those who wait for them; returns how many it had.

        Raises:
            google.protobuf.message.DecodeError: one is none; nothing of the batch is taken.
        """
        packed = batch.events[:]  # in one go, which a loop over the field is not
        count = len(packed)
        if batch.cursor <= self.received:
            return count
        events = list(map(_EVENT, packed))
        self.received = batch.cursor
        came = _Batch(batch.cursor)
        self._batches.append(came)
        in_flight = self.in_flight
        for event in events:
            key = (event.rollout_id, event.attempt)
            asked = in_flight.get(key)
            if asked is None:
                self._stray(event)
                continue
            if asked.repeated and event.sequence <= asked.repeated:
                continue
            asked.sequence += 1
            ended = _KIND(event, "event") in _TERMINAL
            sink = asked.sink  # called as a method, it would be looked for in the class first
            try:
                sink(event)
            except Exception as error:
                # Whatever a sink makes of an event is its attempt's affair, and no other's.
                self._objected(key, ended)
                asked.done(error)
                continue
            if ended:
                del in_flight[key]
                if asked.held:
                    came.unstored += 1
                    self._unstored[key] = came
                asked.done(None)
        self._advance()
        return count

    def refused(self, refusal: agent_pb2.CollectStartRefused) -> None:
        """Starts were not taken."""
        for ref in refusal.attempts:
            key = key_of(ref)
            self._abandoned.discard(key)
            asked = self.in_flight.pop(key, None)
            if asked is not None:
                asked.done(from_status(refusal.status))

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
        for asked in failed:
            asked.done(again(error))

    def _lose(self, address: str) -> None:
        """The agent knows nothing of what it was asked for."""
        self.received = self.acknowledged = 0
        self._batches.clear()
        self._unstored.clear()
        self._abandoned.clear()
        lost = [asked for asked in self.in_flight.values() if asked.sent]
        for asked in lost:
            del self.in_flight[asked.key]
        for asked in lost:
            asked.done(
                MeshError(
                    errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
                    f"the agent at {address} lost the rollout; it was restarted, or was out of "
                    "reach for too long",
                    metadata={"address": address},
                )
            )

    def _objected(self, key: Key, ended: bool) -> None:
        del self.in_flight[key]
        if not ended:
            self._abandoned.add(key)
            self.unwanted.append(key)

    def _stray(self, event: pb.RolloutEvent) -> None:
        self.stale += 1
        if self._abandoned and event.WhichOneof("event") in _TERMINAL:
            self._abandoned.discard((event.rollout_id, event.attempt))

    def _advance(self) -> None:
        while self._batches and not self._batches[0].unstored:
            self.acknowledged = self._batches.popleft().cursor


def again(error: MeshError) -> MeshError:
    """The error once more: one object that is raised in many places gathers their tracebacks."""
    return MeshError(
        error.reason,
        error.message,
        metadata=error.metadata,
        retry_after_s=error.retry_after_s,
        code=error.code,
        usage=error.usage,
    )


TRIED_S: Final = "tried_s"
"""Metadata of the error that ends a lost stream: for how long it was tried to connect again."""


def tried_in_vain_s(error: MeshError) -> float:
    """For how long an agent had been tried in vain when this error came."""
    tried = error.metadata.get(TRIED_S, "")
    return float(tried) if tried.isascii() and tried.isdecimal() and len(tried) < 6 else 0.0


def key_of(one: agent_pb2.RunRolloutRequest | agent_pb2.AttemptRef) -> Key:
    """Which attempt a message means; zero counts as 1."""
    return one.rollout_id, one.attempt or 1


def packed_starts(asked: Iterable[Asked], now: float) -> bytes:
    """The CollectRequest that starts these, in its bytes.

    Each attempt must end in the time that it still has.
    """
    message = PackedRequest()
    add = message.starts.starts.add
    for one in asked:
        start = add()
        start.request = one.request
        left_ms = int((one.due - now) * 1000 + 0.5)
        start.timeout_ms = left_ms if left_ms > 0 else 1
    packed: bytes = message.SerializeToString()
    return packed


def cancels_message(keys: Iterable[Key]) -> agent_pb2.CollectRequest:
    """The message that cancels these."""
    refs = [agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1]) for key in keys]
    return agent_pb2.CollectRequest(cancels=agent_pb2.CollectCancels(attempts=refs))
