"""The attempts of one stream: waiting, running and ended ones. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gymmesh.agent.v1 import agent_pb2
from gymmesh_agent.collect_stream.send_buffer import Key


@dataclass(slots=True, eq=False)
class QueuedAttempt:
    """An attempt that a collector requested.

    Attributes:
        key: the rollout's id and the attempt's number.
        asked_at: when the collector requested it, in the clock's seconds.
        due: when it must end, in the clock's seconds; infinity: it has no deadline.
        events: how many events it has sent.
        ended: whether its terminal event was sent, or its start refused.
        cancelled: whether the collector cancelled it while it ran.
    """

    key: Key
    request: agent_pb2.RunRolloutRequest
    asked_at: float = 0.0
    due: float = math.inf
    events: int = 0
    ended: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class RunQueue:
    """The attempts of one stream.

    A collector repeats a start if it cannot know whether the start arrived before the connection
    broke. The queue recognises a repeat while the attempt waits, runs, or has ended with
    unacknowledged events.

    Attributes:
        max_waiting: the most attempts that may wait.
        waiting: the waiting attempts, in the order of arrival.
        running: the running attempts.
    """

    max_waiting: int
    waiting: dict[Key, QueuedAttempt] = field(default_factory=dict)
    running: dict[Key, QueuedAttempt] = field(default_factory=dict)
    _ended: set[Key] = field(default_factory=set)
    _earliest: float = math.inf  # none of those that wait is due before

    @property
    def idle(self) -> bool:
        """Whether no attempt waits or runs."""
        return not self.waiting and not self.running

    def knows(self, key: Key) -> bool:
        """Whether a start of this attempt is a repeat."""
        return key in self.waiting or key in self.running or key in self._ended

    def add(self, attempt: QueuedAttempt) -> bool:
        """Add a new attempt to the waiting ones; False if the queue is full."""
        if len(self.waiting) >= self.max_waiting:
            return False
        self.waiting[attempt.key] = attempt
        self._earliest = min(self._earliest, attempt.due)
        return True

    def start_next(self) -> QueuedAttempt | None:
        """The attempt that has waited longest. It counts as running from now on."""
        if not self.waiting:
            return None
        key = next(iter(self.waiting))
        attempt = self.running[key] = self.waiting.pop(key)
        return attempt

    def remove_waiting(self, key: Key) -> bool:
        """Remove a waiting attempt; False if the attempt does not wait."""
        return self.waiting.pop(key, None) is not None

    def remove_overdue(self, now: float) -> list[Key]:
        """Remove the attempts that waited until their deadline; the earliest first."""
        if now < self._earliest:
            return []
        late = sorted((one.due, key) for key, one in self.waiting.items() if one.due <= now)
        for _, key in late:
            del self.waiting[key]
        self._earliest = min((one.due for one in self.waiting.values()), default=math.inf)
        return [key for _, key in late]

    def remove_all_waiting(self) -> list[Key]:
        """Remove all waiting attempts."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def finish(self, attempt: QueuedAttempt) -> None:
        """An attempt has stopped running."""
        self.running.pop(attempt.key, None)

    def remember(self, key: Key) -> None:
        """The terminal event of an attempt waits to be acknowledged."""
        self._ended.add(key)

    def forget(self, keys: Iterable[Key]) -> None:
        """The terminal events of these attempts are acknowledged."""
        self._ended.difference_update(keys)


class HasQueue(Protocol):
    """Something with a run queue."""

    @property
    def queue(self) -> RunQueue:
        """The queue."""


Q = TypeVar("Q", bound=HasQueue)


def next_to_start(owners: Iterable[Q], capacity: int) -> Q | None:
    """The queue that starts an attempt next: of those with a waiting attempt, the one with the
    fewest running attempts.

    None if no attempt waits, or if `capacity` attempts already run. A stream that has all places
    gives them up one by one, as its attempts end.
    """
    total, fewest = 0, capacity
    chosen: Q | None = None
    for owner in owners:
        running = len(owner.queue.running)
        total += running
        if owner.queue.waiting and running < fewest:
            chosen, fewest = owner, running
    return chosen if total < capacity else None


def fair_share(capacity: int, streams: int) -> int:
    """How many attempts each of several streams should have running; at least one."""
    return max(1, capacity // max(1, streams))
