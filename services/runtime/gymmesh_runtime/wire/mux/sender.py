"""What one end of a link has to send: small frames in a queue, large messages beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from gymmesh_runtime.wire.batch import KIB, MIB, BatchLimits, Outbox, OutboxClosed
from gymmesh_runtime.wire.mux.frames import Frame, size_of
from gymmesh_runtime.wire.mux.lanes import Lanes

BATCHING: Final = BatchLimits(max_items=1024, max_bytes=256 * KIB, delay_s=0.02)
#: With fewer calls in flight than this a frame does not wait for company.
_QUIET: Final = 16
#: With more it waits so long for each of them, in seconds: less than a process needs for a call
#: of each anyway, so that what a batch saves costs no throughput.
_DELAY_PER_CALL_S: Final = 40e-6
#: A frame that may wait for so much of what is waited for anyway waits with it: a crowd that
#: shrinks would else set the timer anew for each of its calls.
_NEARLY: Final = 0.75
QUEUED_BYTES: Final = 8 * MIB
#: Of large messages; who has another one waits.
_LANE_BYTES: Final = 64 * MIB


class Sender:
    """The queue of a link, for any number of calls and one writer."""

    def __init__(self, batching: BatchLimits = BATCHING) -> None:
        self._loop = asyncio.get_running_loop()
        self._outbox: Outbox[Frame] = Outbox(batching, max_queued_bytes=QUEUED_BYTES)
        self._lanes = Lanes()
        self._room: list[asyncio.Future[None]] = []  # who waits for room in the lanes
        self._taken = 0  # frames taken from the outbox since the start
        self._piece = -1  # the last frame from a lane: its place among all since the start
        self._closing = False
        #: Whether whoever can wait should.
        self.full = False

    @property
    def queued_items(self) -> int:
        """Frames that wait, chunks of large messages not counted."""
        return self._outbox.queued_items

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait, chunks of large messages included."""
        return self._outbox.queued_bytes + self._lanes.size

    async def room(self) -> None:
        """Waits until not ``full``. Raises OutboxClosed. Bounded by the caller's deadline."""
        while self._outbox.full or self._lanes.size >= _LANE_BYTES:
            await self._outbox.room()
            if self._lanes.size >= _LANE_BYTES:
                waiter = self._loop.create_future()
                self._room.append(waiter)
                await waiter
        if self._outbox.closed:
            raise OutboxClosed

    def send_one(self, call: int, frame: Frame, size: int, crowd: int = 0) -> None:
        """Queues a small frame of a call; dropped when closed.

        ``crowd`` says how many calls are in flight; 0 makes it urgent.
        """
        if self._lanes.size and call in self._lanes:
            self._lanes.add(call, (frame,))
            self._weigh()
            return
        outbox = self._outbox
        if outbox.closed:
            return
        delay_s = 0.0 if crowd < _QUIET else crowd * _DELAY_PER_CALL_S
        waiting = outbox.waiting
        # Most frames find a batch that leaves soon enough, and is far from what the queue holds.
        if delay_s >= waiting.patience * _NEARLY and waiting.join(frame, size):
            return
        outbox.put(frame, size, delay_s=delay_s)
        if outbox.full:
            self.full = True

    def send(self, call: int, frames: Sequence[Frame], crowd: int = 0) -> None:
        """Queues frames of a call: one, or those of a large message."""
        if len(frames) == 1:
            self.send_one(call, frames[0], size_of(frames[0]), crowd)
        elif not self._outbox.closed:
            self._lanes.add(call, frames)
            self._feed()
            self._weigh()

    def forget(self, call: int) -> None:
        """Drops what a call still had to send in chunks."""
        self._lanes.drop(call)
        self._weigh()
        self._wake()

    async def batch(self) -> list[Frame]:
        """The next batch; empty when closed and empty. For one writer."""
        batch = await self._outbox.batch()
        self._taken += len(batch)
        if len(self._lanes):
            self._feed()
        elif self._closing:
            self._outbox.close()
        self._weigh()
        return batch

    def close(self) -> None:
        """Closes once the large messages under way are queued; what is queued can be taken."""
        self._closing = True
        if not len(self._lanes):
            self._outbox.close()

    def abort(self) -> None:
        """Closes now; nothing more is sent."""
        self._outbox.close()
        self._wake()

    def _weigh(self) -> None:
        self.full = self._outbox.full or self._lanes.size >= _LANE_BYTES

    def _feed(self) -> None:
        # One piece of a large message in the queue at a time.
        if self._taken > self._piece and (frame := self._lanes.next()) is not None:
            self._piece = self._taken + self._outbox.queued_items
            if not self._outbox.closed:
                self._outbox.put(frame, size_of(frame), urgent=True)
            if self._lanes.size < _LANE_BYTES:
                self._wake()

    def _wake(self) -> None:
        waiting, self._room = self._room, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
