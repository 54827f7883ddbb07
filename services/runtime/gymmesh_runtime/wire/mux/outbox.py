"""A queue of frames to be sent over a stream, between any number of senders and one writer.

What an RPC message costs is its handling, not its bytes, so frames travel in batches. A batch has
the frames that came before the writer's turn on the event loop, at most 1,024 or 256 KiB of them.
No frame waits for others: the busier the process, the more frames each turn brings.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeVar

from gymmesh_runtime.sizes import KIB, MIB

T = TypeVar("T")

_BATCH_ITEMS: Final = 1024
_BATCH_BYTES: Final = 256 * KIB


class OutboxClosed(Exception):
    """Something was put into an outbox, or waited for room in it, after it was closed."""


class Outbox(Generic[T]):
    """A queue on one event loop. Items leave in the order in which they came, each once.

    ``put`` never waits. The bounds are the sender's to keep: a sender that may wait
    looks at ``full`` and awaits ``room()`` before a put; what may not wait (a
    cancellation, the end of a call) is put all the same.

    Args:
        batch_items, batch_bytes: the most that leave together; an item that is larger than
            ``batch_bytes`` leaves alone.
        max_queued_items, max_queued_bytes: with so much waiting it is ``full``.
    """

    def __init__(
        self,
        *,
        batch_items: int = _BATCH_ITEMS,
        batch_bytes: int = _BATCH_BYTES,
        max_queued_items: int = 65_536,
        max_queued_bytes: int = 8 * MIB,
    ) -> None:
        self._batch_items = batch_items
        self._batch_bytes = batch_bytes
        self._max_items = max_queued_items
        self._max_bytes = max_queued_bytes
        # Side by side: a pair for each item would be one more object.
        self._items: list[T] = []
        self._sizes: list[int] = []
        #: Bytes that wait; to be read.
        self.size = 0
        self._writer: asyncio.Future[None] | None = None  # what the writer waits on
        self._room = asyncio.Event()  # set while it is not full, or closed
        #: Whether senders that can wait should.
        self.full = False
        #: Whether it was closed; what is in it can still be taken.
        self.closed = False

    @property
    def queued_items(self) -> int:
        return len(self._items)

    def put(self, item: T, size: int) -> None:
        """Adds an item of ``size`` bytes. Raises OutboxClosed."""
        if self.closed:
            raise OutboxClosed
        self._items.append(item)
        self._sizes.append(size)
        self.size += size
        if self._over_bounds():
            self.full = True
            self._room.clear()
        self._wake()

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
        while not self._items and not self.closed:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer
        batch = self._take()
        if self.full and not self._over_bounds():
            self.full = False
            self._room.set()
        return batch

    def close(self) -> None:
        """Accepts no further items; the writer gets the remaining ones, then an empty batch."""
        self.closed = True
        self._wake()
        self._room.set()

    def _over_bounds(self) -> bool:
        return self.size >= self._max_bytes or len(self._items) >= self._max_items

    def _wake(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _take(self) -> list[T]:
        if self.size <= self._batch_bytes and len(self._items) <= self._batch_items:
            batch, self._items = self._items, []
            self._sizes.clear()
            self.size = 0
            return batch
        taken, room = 0, self._batch_bytes
        for size in self._sizes[: self._batch_items]:
            if size > room and taken:
                break
            taken += 1
            room -= size
        batch = self._items[:taken]
        self.size -= sum(self._sizes[:taken])
        del self._items[:taken], self._sizes[:taken]
        return batch
