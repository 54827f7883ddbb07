"""Sends the frames of one end of a stream: small frames in a queue, large messages beside it.

If all chunks of a large message were queued at once, all later frames would wait for the whole
message. So only one chunk is in the send queue at a time. The other chunks wait beside it, in one
queue for each call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from gymmesh_runtime.sizes import MIB
from gymmesh_runtime.wire.mux.frames import Frame, size_of
from gymmesh_runtime.wire.mux.outbox import Outbox, OutboxClosed

QUEUED_BYTES: Final = 8 * MIB
#: Of large messages; a call with another one waits.
_CHUNKED_BYTES: Final = 64 * MIB


class ChunkQueues:
    """Frames of the calls that send a large message, in order for each call."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[Frame]] = {}
        self._turns: deque[int] = deque()  # calls, next one first
        self.size = 0  # bytes that wait

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, call: int) -> bool:
        """Whether frames of this call wait, so that further ones must wait behind them."""
        return call in self._queues

    def add(self, call: int, frames: Iterable[Frame]) -> None:
        """Adds frames of a call after the call's waiting frames."""
        queue = self._queues.get(call)
        if queue is None:
            queue = self._queues[call] = deque()
            self._turns.append(call)
        for frame in frames:
            queue.append(frame)
            self.size += size_of(frame)

    def next(self) -> Frame | None:
        """Removes the next frame, of the call whose turn it is; None if no frame waits."""
        if not self._turns:
            return None
        call = self._turns.popleft()
        queue = self._queues[call]
        frame = queue.popleft()
        self.size -= size_of(frame)
        if queue:
            self._turns.append(call)
        else:
            del self._queues[call]
        return frame

    def drop(self, call: int) -> None:
        """Forgets the waiting frames of a call."""
        queue = self._queues.pop(call, None)
        if queue is not None:
            self._turns.remove(call)
            self.size -= sum(map(size_of, queue))


class Sender:
    """The send queue of a stream, for any number of calls and one writer."""

    def __init__(self) -> None:
        self._outbox: Outbox[Frame] = Outbox(max_queued_bytes=QUEUED_BYTES)
        self._chunks = ChunkQueues()
        self._room = asyncio.Event()  # set, for a moment, when there may be room for chunks
        self._taken = 0  # frames taken from the outbox since the start
        self._piece = -1  # the last chunk put there: its place among all since the start
        self._closing = False

    @property
    def full(self) -> bool:
        """Whether a call that can wait should wait."""
        return self._outbox.full or self._chunks.size >= _CHUNKED_BYTES

    @property
    def queued_items(self) -> int:
        """The number of waiting frames, without chunks of large messages."""
        return self._outbox.queued_items

    async def room(self) -> None:
        """Waits until it is not ``full``. Raises OutboxClosed. The caller's deadline limits the
        wait.
        """
        while self.full:
            await self._outbox.room()
            if self._chunks.size >= _CHUNKED_BYTES:
                await self._room.wait()
        if self._outbox.closed:
            raise OutboxClosed

    def send(self, frames: Sequence[Frame]) -> None:
        """Queues frames of one call: one frame, or the frames of a large message. Drops them if
        closed.
        """
        first = frames[0]
        if self._outbox.closed:
            return
        if len(frames) > 1 or first.call in self._chunks:
            self._chunks.add(first.call, frames)
            self._feed()
        else:
            self._outbox.put(first, size_of(first))

    def forget(self, call: int) -> None:
        """Drops the waiting chunks of a call."""
        self._chunks.drop(call)
        self._wake()

    async def batch(self) -> list[Frame]:
        """The next batch; empty if the sender is closed and empty. For one writer."""
        batch = await self._outbox.batch()
        self._taken += len(batch)
        if len(self._chunks):
            self._feed()
        elif self._closing:
            self._outbox.close()
        return batch

    def close(self) -> None:
        """Closes once all chunks of large messages are queued. Queued frames can still be taken."""
        self._closing = True
        if not len(self._chunks):
            self._outbox.close()

    def abort(self) -> None:
        """Closes now; no more frames are sent."""
        self._outbox.close()
        self._wake()

    def _feed(self) -> None:
        # One piece of a large message in the queue at a time.
        if self._taken > self._piece and (frame := self._chunks.next()) is not None:
            self._piece = self._taken + self.queued_items
            if not self._outbox.closed:
                self._outbox.put(frame, size_of(frame))
            if self._chunks.size < _CHUNKED_BYTES:
                self._wake()

    def _wake(self) -> None:
        self._room.set()
        self._room.clear()
