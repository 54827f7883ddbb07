"""The watchers of a registry, each with a bounded queue of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from gymmesh_discovery.registry_view import Change

_QUEUE: Final = 1024


class Watcher:
    """A bounded queue of changes. After an overflow the queue holds a single None."""

    def __init__(self, watchers: set[Watcher]) -> None:
        self._watchers = watchers
        self._queue: asyncio.Queue[Change | None] = asyncio.Queue(_QUEUE)

    async def next(self) -> Change | None:
        """The next change. None: changes were missed, so take a snapshot."""
        return await self._queue.get()

    def put(self, change: Change) -> None:
        if self._queue.full():
            self.miss()
        else:
            self._queue.put_nowait(change)

    def miss(self) -> None:
        """Replaces the waiting changes by None, which says that changes were missed."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    def close(self) -> None:
        self._watchers.discard(self)


class Watchers:
    """All watchers of a registry in this process."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._watchers)

    def subscribe(self) -> Watcher:
        """Returns a watcher that gets every change from this call on."""
        watcher = Watcher(self._watchers)
        self._watchers.add(watcher)
        return watcher

    def publish(self, changes: Collection[Change]) -> None:
        """Sends changes to all watchers."""
        for change in changes:
            for watcher in self._watchers:
                watcher.put(change)

    def missed(self) -> None:
        """Tells all watchers that they missed changes, so that each takes a snapshot."""
        for watcher in self._watchers:
            watcher.miss()
