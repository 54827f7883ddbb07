"""The batching layer: many small things over one stream, in few messages.

What an RPC message costs is its handling, not its bytes, so every long-lived
stream of the mesh (the mux both ways, Collect both ways) sends batches. When a
batch leaves is decided by ``Coalescer``, which knows neither sockets nor clocks;
``Outbox`` is its asyncio edge, between any number of senders and one writer.

    quiet stream     an item leaves at the end of the loop's turn
    busy stream      items gather for at most ``delay_s`` since the last batch
    large or many    ``max_bytes`` or ``max_items`` reached: at the end of the turn
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch leaves, and how much of it there may be.

    A single item larger than ``max_bytes`` is a batch of its own. ``delay_s`` is
    in seconds; 0 sends whatever a turn of the loop brought.
    """

    max_items: int = 1024
    max_bytes: int = 256 * KIB
    delay_s: float = 0.002


class Coalescer(Generic[T]):
    """Which items leave together and when. Pure: the caller brings the time, in seconds.

    Laws: items leave in the order in which they came, each exactly once; no batch
    is larger than the limits allow; ``due()`` is never later than ``delay_s``
    after the oldest waiting item came.
    """

    __slots__ = ("_due", "_items", "_last", "_limits", "size")

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._items: deque[tuple[T, int]] = deque()
        self._due: float | None = None
        self._last = float("-inf")  # when the last batch left
        self.size = 0  # bytes that wait

    def __len__(self) -> int:
        return len(self._items)

    def add(
        self,
        item: T,
        size: int,
        now: float,
        *,
        urgent: bool = False,
        delay_s: float | None = None,
    ) -> bool:
        """Adds an item of ``size`` bytes; returns whether a batch should leave now.

        ``urgent`` makes it leave now, with whatever waits before it; ``delay_s``
        makes it leave sooner than the limits say.
        """
        self._items.append((item, size))
        self.size += size
        limits = self._limits
        if urgent or self.size >= limits.max_bytes or len(self._items) >= limits.max_items:
            self._due = now
        elif self._due is None or delay_s is not None:
            delay = limits.delay_s if delay_s is None else min(delay_s, limits.delay_s)
            due = max(now, min(self._last, now) + delay)
            if self._due is None or due < self._due:
                self._due = due
        return self._due <= now

    def due(self) -> float | None:
        """When the next batch should leave; None when nothing waits."""
        return self._due

    def take(self, now: float) -> list[T]:
        """Removes the next batch and returns it; empty when nothing waits."""
        items, limits = self._items, self._limits
        self._last = now
        if self.size <= limits.max_bytes and len(items) <= limits.max_items:
            batch = [item for item, _ in items]
            items.clear()
            self.size = 0
        else:
            batch = self._take_some()
        # What did not fit has waited already.
        self._due = now if items else None
        return batch

    def _take_some(self) -> list[T]:
        items, limits = self._items, self._limits
        batch: list[T] = []
        room = limits.max_bytes
        while items and len(batch) < limits.max_items:
            item, size = items[0]
            if size > room and batch:
                break
            items.popleft()
            batch.append(item)
            room -= size
            self.size -= size
        return batch


class OutboxClosed(Exception):
    """Something was put into an outbox, or waited for room in it, after it was closed."""


class Outbox(Generic[T]):
    """Between many senders and one writer, on one event loop.

    ``put`` never waits. The bounds are the sender's to keep: whoever may wait
    asks ``full`` and awaits ``room()`` before a put; what may not wait (a
    cancellation, the end of a call) is put all the same.
    """

    def __init__(
        self,
        limits: BatchLimits | None = None,
        *,
        max_queued_items: int = 65_536,
        max_queued_bytes: int = 8 * MIB,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._coalescer: Coalescer[T] = Coalescer(limits or BatchLimits())
        self._max_items = max_queued_items
        self._max_bytes = max_queued_bytes
        self._writer: asyncio.Future[None] | None = None  # what the writer waits on
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._room: deque[asyncio.Future[None]] = deque()
        self._ripe = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it was closed; what is in it can still be taken."""
        return self._closed

    @property
    def queued_items(self) -> int:
        """Items that wait."""
        return len(self._coalescer)

    @property
    def queued_bytes(self) -> int:
        """Their size in bytes."""
        return self._coalescer.size

    @property
    def full(self) -> bool:
        """Whether whoever can wait should."""
        coalescer = self._coalescer
        return coalescer.size >= self._max_bytes or len(coalescer) >= self._max_items

    def put(
        self, item: T, size: int, *, urgent: bool = False, delay_s: float | None = None
    ) -> None:
        """Adds an item of ``size`` bytes. ``urgent``: do not hold it back for others.

        ``delay_s``: hold it back for less than the limits allow. Raises OutboxClosed.
        """
        if self._closed:
            raise OutboxClosed
        now = self._loop.time()
        if self._coalescer.add(item, size, now, urgent=urgent, delay_s=delay_s):
            if not self._ripe:
                self._ripen()
            return
        due = self._coalescer.due()
        assert due is not None  # an item waits
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_due = self._loop.call_at(due, self._ripen), due

    async def room(self) -> None:
        """Waits, first come first served, until it is not full. Raises OutboxClosed.

        Bounded by the caller's own deadline.
        """
        while self.full:
            if self._closed:
                raise OutboxClosed
            waiter = self._loop.create_future()
            self._room.append(waiter)
            await waiter
        if self._closed:
            raise OutboxClosed

    async def batch(self) -> list[T]:
        """Waits for the next batch; an empty one says that the outbox is closed and empty.

        For one writer, which calls it again after the last batch is written.
        """
        while not self._ripe and not self._closed:
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._coalescer.take(self._loop.time())
        self._ripe = len(self._coalescer) > 0
        if self._room and not self.full:
            self._wake_all()
        return batch

    def close(self) -> None:
        """Takes no more; the writer gets what is in it, and then an empty batch."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ripen()
        self._wake_all()

    def _ripen(self) -> None:
        self._ripe = True
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _wake_all(self) -> None:
        # All of them: one that was woken may give up before it puts anything. They
        # run in the order in which they came, and who finds it full again waits again.
        waiting, self._room = self._room, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
