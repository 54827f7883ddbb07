"""The batching layer: many small things over one stream, in few messages.

What an RPC message costs is its handling, not its bytes, so every long-lived
stream of the mesh (the mux both ways, Collect both ways) sends batches. When a
batch leaves is decided by ``Coalescer``, which knows neither sockets nor clocks;
``Outbox`` is its asyncio edge, between any number of senders and one writer, which
its ``Wakeup`` wakes.

    quiet stream     an item leaves at the end of the loop's turn
    busy stream      items gather for at most ``delay_s`` since the last batch
    large or many    ``max_bytes`` or ``max_items`` reached: at the end of the turn
"""

from __future__ import annotations

import asyncio
import math
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

    __slots__ = ("_delay_s", "_due", "_last", "_max_bytes", "_max_items", "_sizes",
                 "items", "size")  # fmt: skip

    def __init__(self, limits: BatchLimits) -> None:
        self._max_items = limits.max_items
        self._max_bytes = limits.max_bytes
        self._delay_s = limits.delay_s
        #: What waits; to be read.
        self.items: list[T] = []
        # Side by side: a pair for each item would be one more object.
        self._sizes: list[int] = []
        self._due: float | None = None
        self._last = float("-inf")  # when the last batch left
        #: Bytes that wait.
        self.size = 0

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
        items, due = self.items, self._due
        items.append(item)
        self._sizes.append(size)
        self.size += size
        if urgent or self.size >= self._max_bytes or len(items) >= self._max_items:
            due = now
        elif due is None or delay_s is not None:
            delay = self._delay_s
            if delay_s is not None and delay_s < delay:
                delay = delay_s
            # Comparisons, as min and max would cost as much as all the rest.
            wanted = (self._last if self._last < now else now) + delay
            if due is None or wanted < due:
                # Before the first batch `wanted` is no number if the delay has no end.
                due = wanted if wanted > now else now
        self._due = due
        return due <= now

    def due(self) -> float | None:
        """When the next batch should leave; None when nothing waits."""
        return self._due

    def take(self, now: float) -> list[T]:
        """Removes the next batch and returns it; empty when nothing waits."""
        self._last = now
        if self.size <= self._max_bytes and len(self.items) <= self._max_items:
            batch, self.items = self.items, []
            self._sizes.clear()
            self.size = 0
        else:
            batch = self._take_some()
        # What did not fit has waited already.
        self._due = now if self.items else None
        return batch

    def _take_some(self) -> list[T]:
        taken, room = 0, self._max_bytes
        for size in self._sizes[: self._max_items]:
            if size > room and taken:
                break
            taken += 1
            room -= size
        batch = self.items[:taken]
        self.size -= sum(self._sizes[:taken])
        del self.items[:taken], self._sizes[:taken]
        return batch


class Wakeup:
    """Wakes the one writer of a stream, now or at a time, on one event loop."""

    __slots__ = ("_loop", "_timer", "_writer", "closed", "due", "time", "woken")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Future[None] | None = None  # what the writer waits on
        #: The loop's clock, in seconds.
        self.time = self._loop.time
        #: When it wakes the writer; infinity: it is set to no time.
        self.due = math.inf
        #: Whether the writer has been woken and has not come yet.
        self.woken = False
        #: Whether it is closed: the writer has no more reason to wait.
        self.closed = False

    def wake(self) -> None:
        """Wake the writer: it comes at the end of the loop's turn, or once it is back."""
        self.woken = True
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def wake_at(self, due: float) -> None:
        """Wake the writer at a time, unless it will be woken sooner, or this is closed."""
        if due < self.due and not self.closed:
            self._stop_timer()
            self._timer, self.due = self._loop.call_at(due, self.wake), due

    def close(self) -> None:
        """Wake the writer for the last time."""
        self.closed = True
        self._stop_timer()
        self.wake()

    def next(self) -> asyncio.Future[None]:
        """What the writer waits on until it is woken or this is closed."""
        # No coroutine with the whole wait: a stream that is not busy has a batch for each item.
        self._writer = self._loop.create_future()
        return self._writer

    def reset(self) -> None:
        """The writer has come: nothing is due."""
        if self._timer is not None:
            self._stop_timer()
        self.woken = False

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self.due = None, math.inf


class OutboxClosed(Exception):
    """Something was put into an outbox, or waited for room in it, after it was closed."""


class Outbox(Generic[T]):
    """Between many senders and one writer, on one event loop.

    ``put`` never waits. The bounds are the sender's to keep: a sender that may wait
    looks at ``full`` and awaits ``room()`` before a put; what may not wait (a
    cancellation, the end of a call) is put all the same.
    """

    def __init__(
        self,
        limits: BatchLimits | None = None,
        *,
        max_queued_items: int = 65_536,
        max_queued_bytes: int = 8 * MIB,
    ) -> None:
        self._wakeup = Wakeup()
        #: What was put and is not taken yet.
        self.waiting: Coalescer[T] = Coalescer(limits or BatchLimits())
        self._max_items = max_queued_items
        self._max_bytes = max_queued_bytes
        #: Whether senders that can wait should.
        self.full = False
        self._room = asyncio.Event()  # set while it is not full, or closed
        #: Whether it was closed; what is in it can still be taken.
        self.closed = False

    @property
    def queued_items(self) -> int:
        return len(self.waiting.items)

    def put(
        self, item: T, size: int, *, urgent: bool = False, delay_s: float | None = None
    ) -> None:
        """Adds an item of ``size`` bytes. ``urgent``: do not hold it back for others.

        ``delay_s``: hold it back for less than the limits allow. Raises OutboxClosed.
        """
        if self.closed:
            raise OutboxClosed
        wakeup, coalescer = self._wakeup, self.waiting
        ripe = coalescer.add(item, size, wakeup.time(), urgent=urgent, delay_s=delay_s)
        if coalescer.size >= self._max_bytes or len(coalescer.items) >= self._max_items:
            self.full = True
            self._room.clear()
        if ripe:
            if not wakeup.woken:
                wakeup.wake()
        elif delay_s is not None or wakeup.due == math.inf:
            due = coalescer.due()
            assert due is not None  # an item waits
            wakeup.wake_at(due)

    async def room(self) -> None:
        """Waits, first come first served, until it is not full. Raises OutboxClosed.

        Bounded by the caller's own deadline.
        """
        # One that was woken may find it full again: all wake, in the order in which they came.
        while self.full and not self.closed:
            await self._room.wait()
        if self.closed:
            raise OutboxClosed

    async def batch(self) -> list[T]:
        """Waits for the next batch; an empty one says that the outbox is closed and empty.

        For one writer, which calls it again after the last batch is written.
        """
        wakeup, coalescer = self._wakeup, self.waiting
        while not wakeup.woken and not wakeup.closed:
            await wakeup.next()
        wakeup.reset()
        batch = coalescer.take(wakeup.time())
        if coalescer.items:
            wakeup.wake()
        if self.full:
            self.full = coalescer.size >= self._max_bytes or len(coalescer.items) >= self._max_items
            if not self.full:
                self._room.set()
        return batch

    def close(self) -> None:
        """Takes no more; the writer gets what is in it, and then an empty batch."""
        self.closed = True
        self._wakeup.close()
        self._room.set()
