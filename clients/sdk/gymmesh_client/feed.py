"""Hands finished groups to whoever asks for them, and waits for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.shelf import Group, GroupShelf
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError

# A reader that was sent everything may have left before it read it all: it comes back for the rest.
_COMES_BACK_S: Final = 5.0


class GroupFeed:
    """The way from a shelf to its readers.

    Args:
        on_room: called when there may be room for new groups.
    """

    def __init__(self, shelf: GroupShelf, on_room: Callable[[], None]) -> None:
        self.shelf = shelf
        #: Whether the last reader was sent everything, after the last group came.
        self.delivered = False
        self._on_room = on_room
        self._readers: set[asyncio.Future[None]] = set()

    async def groups(self, after: int, max_staleness: int | None) -> AsyncGenerator[Group, None]:
        """The groups after a cursor, which acknowledges all up to it; ends with the run.

        Raises:
            MeshError: FIELD_INVALID; the cursor is none of this session's.
        """
        shelf = self.shelf
        if after > shelf.last_cursor:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"after_cursor {after} is none that this session gave (the last is "
                f"{shelf.last_cursor}); begin at 0 after a collector was started anew",
                metadata={"field": "after_cursor"},
            )
        self.delivered = False
        self.acknowledge(after)
        cursor = after
        while True:
            group = shelf.after(cursor)
            if group is None:
                if shelf.closed:
                    self.delivered = True
                    self.wake()
                    return
                await self._news()
                continue
            cursor = group.cursor
            if shelf.is_stale(group, max_staleness):
                shelf.discard_stale(group)
                metrics.GROUPS.labels("stale").inc()
                self._on_room()
            else:
                yield group

    def acknowledge(self, cursor: int) -> None:
        """All groups up to a cursor are in the trainer's hands."""
        before = self.shelf.unacknowledged
        self.shelf.acknowledge(cursor)
        metrics.GROUPS.labels("acknowledged").inc(before - self.shelf.unacknowledged)
        self.wake()
        self._on_room()

    def wake(self) -> None:
        """Something changed: a group came, one left, or no more will come."""
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def close(self) -> None:
        """No more groups will come."""
        self.shelf.closed = True
        self.wake()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until all groups are in a trainer's hands; False when time is up.

        They are when they were acknowledged, or sent to a reader that does not come back for any.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.shelf.unacknowledged:
                    if await self._is_left_alone():
                        return True
        except TimeoutError:
            return False
        return True

    async def _is_left_alone(self) -> bool:
        """Wait for news; True: a reader was sent everything, and none came since."""
        patience = asyncio.timeout(_COMES_BACK_S if self.delivered else None)
        try:
            async with patience:
                await self._news()
        except TimeoutError:
            if patience.expired():
                return True
            raise
        return False

    async def _news(self) -> None:
        reader = asyncio.get_running_loop().create_future()
        self._readers.add(reader)
        try:
            await reader
        finally:
            self._readers.discard(reader)
