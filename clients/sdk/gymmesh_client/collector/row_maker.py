"""Makes rows without holding up the loop: small ones in it, 64 a turn, large ones in a thread."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.attempt import LARGE_BYTES, message_of
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import FailedAttempt, completed_line, failure_line
from gymmesh_client.summary import Counted

# Rows made in one turn of the loop; one takes a fraction of a millisecond.
_ROWS_A_TURN: Final = 64


class RowMaker:
    """Makes the rows of a run. No method is to be cancelled."""

    def __init__(self) -> None:
        self._turns = Turns(_ROWS_A_TURN)
        # One at a time: threads that compute do not run side by side.
        self._thread = asyncio.Lock()

    async def completed(self, task: pb.Task, parts: RolloutParts) -> tuple[bytes, Counted]:
        """As `completed_line`."""
        if parts.size < LARGE_BYTES:
            await self._turns.take()
            return completed_line(task, parts)
        async with self._thread:
            return await asyncio.to_thread(completed_line, task, parts)

    async def release(self, parts: RolloutParts) -> None:
        """As `RolloutParts.release`, of a rollout that is large."""
        if parts.size >= LARGE_BYTES:
            async with self._thread:
                await asyncio.to_thread(parts.release)

    async def failed(self, task: pb.Task, failed: FailedAttempt) -> bytes:
        """As `failure_line`."""
        if (failed.size or failed.partial.ByteSize()) < LARGE_BYTES:
            return failure_line(task, failed)
        async with self._thread:
            return await asyncio.to_thread(failure_line, task, failed)

    async def message(self, parts: RolloutParts) -> pb.Rollout:
        """As `RolloutParts.message`."""
        if parts.size < LARGE_BYTES:
            return parts.message()
        async with self._thread:
            return await message_of(parts)


class Turns:
    """At most so many pieces of work in one turn of the loop; the others wait, in order.

    So a burst of work does not hold up others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._next_turn: asyncio.Handle | None = None

    async def take(self) -> None:
        """Wait for a place in this turn of the loop, or in a later one. Not to be cancelled."""
        loop = asyncio.get_running_loop()
        if self._next_turn is None:
            self._next_turn = loop.call_soon(self._begin_turn)
        if self._taken < self._most and not self._waiting:
            self._taken += 1
            return
        place = loop.create_future()
        self._waiting.append(place)
        await place

    def _begin_turn(self) -> None:
        self._taken, self._next_turn = 0, None
        while self._waiting and self._taken < self._most:
            self._taken += 1
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
        if self._taken:  # more may come in the rest of this turn
            self._next_turn = asyncio.get_running_loop().call_soon(self._begin_turn)
