"""A queue of frames to be sent over a stream, between any number of senders and one writer.

The cost of an RPC message is its handling, not its bytes, so frames travel in batches. A batch has
the frames that were queued before the writer's turn on the event loop, at most 1,024 frames or 256
KiB. No frame waits for others: the busier the process, the more frames per turn.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeVar

from gymmesh_runtime.sizes import KIB, MIB

T = TypeVar("T")

_BATCH_ITEMS: Final = 1024
_BATCH_BYTES: Final = 256 * KIB


class OutboxClosed(Exception):
    """The outbox was closed before an item was put into it, or while a sender waited for room."""


class Outbox(Generic[T]):
    """A queue on one event loop. Items leave in the order in which they arrived, each once.

    ``put`` never waits. Senders must respect the limits: a sender that can wait checks ``full`` and
    awaits ``room()`` before a put. Items that cannot wait (a cancellation, the end of a call) are
    put anyway.

    Args:
        batch_items, batch_bytes: the limits of a batch; an item larger than ``batch_bytes`` leaves
            alone.
        max_queued_items, max_queued_bytes: at these limits the outbox is ``full``.
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
        """Waits until the outbox is not full; first come, first served. Raises OutboxClosed.

        The caller's own deadline must limit the wait.
        """
        # One that was woken may find it full again: all wake, in the order in which they came.
        while self.full and not self.closed:
            await self._room.wait()
        if self.closed:
            raise OutboxClosed

    async def batch(self) -> list[T]:
        """Waits for the next batch. An empty batch means that the outbox is closed and empty.

        For one writer, which calls it again after it has written the last batch.
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
        """Accepts no further items. The writer gets the remaining items, then an empty batch."""
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
