"""Updates a catalog from a registry, and wakes the streams after a change."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.backends.watchers import Watcher
from gymmesh_discovery.registry_view import Change
from gymmesh_discovery.xds.catalog import Catalog
from gymmesh_runtime.text import one_line
from gymmesh_runtime.timers import cancel_and_wait

_log = logging.getLogger("gymmesh.xds")

# Changes of this time go out together; the first one after a pause goes out at once.
_BATCH_S: Final = 0.05
_PAUSE_S: Final = 1.0


class RegistryFeed:
    """The catalog of a registry.

    The catalog is not settled for ``settle_s`` after the start. Services renew their leases every
    five seconds, and a registry that starts with an empty list learns of them only then.
    """

    def __init__(self, backend: RegistryBackend, *, settle_s: float) -> None:
        self.catalog = Catalog()
        self.streams: set[asyncio.Event] = set()  # set when there may be something to send
        #: When the oldest change came that the catalog's version has and the one before had not.
        self.changed_at = 0.0
        self._pending_since = 0.0  # when the oldest change came that is in no version yet
        self._backend = backend
        self._settle_s = settle_s
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._logged: dict[str, str] = {}

    async def open(self) -> None:
        """Takes a snapshot, then follows the changes."""
        self.catalog.settled = self._settle_s <= 0
        subscription = self._backend.subscribe()
        version = self._take_snapshot()
        self.publish()
        self._tasks = [
            asyncio.create_task(self._follow(subscription, version)),
            asyncio.create_task(self._publish_forever()),
            asyncio.create_task(self._settle()),
        ]

    async def close(self) -> None:
        await cancel_and_wait(*self._tasks)
        self._tasks = []

    def publish(self) -> None:
        """Shows the changes so far to the streams."""
        if self.catalog.commit():
            self.changed_at = self._pending_since or time.monotonic()
            metrics.XDS_VIEW_VERSION.set(self.catalog.version)
            self._wake()
        self._pending_since = 0.0
        self._log_problems()

    async def _follow(self, subscription: Watcher, version: int) -> None:
        missed = False
        while True:
            try:
                while True:
                    change = None if missed else await subscription.next()
                    missed = False
                    version = self._take(change, version)
                    self._pending_since = self._pending_since or time.monotonic()
                    self._changed.set()
            except Exception:
                _log.exception(
                    "the xDS control plane missed changes of the registry; the control plane now "
                    "reads the whole registry again"
                )
            finally:
                subscription.close()
            await asyncio.sleep(_PAUSE_S)
            subscription, missed = self._backend.subscribe(), True

    def _take(self, change: Change | None, version: int) -> int:
        """Takes a change into the catalog, None for missed ones; returns the version it is at."""
        if change is None:
            return self._take_snapshot()
        if change.version <= version:
            return version  # in the snapshot already
        if change.removed:
            self.catalog.remove(change.instance.id)
        else:
            self.catalog.put(change.instance)
        return change.version

    def _take_snapshot(self) -> int:
        version, instances = self._backend.snapshot("", "")
        self.catalog.replace(instances)
        return version

    async def _publish_forever(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.publish()
            await asyncio.sleep(_BATCH_S)

    async def _settle(self) -> None:
        await asyncio.sleep(self._settle_s)
        self.catalog.settled = True
        self._wake()

    def _wake(self) -> None:
        for stream in self.streams:
            stream.set()

    def _log_problems(self) -> None:
        problems = self.catalog.problems
        for instance_id, problem in problems.items():
            if self._logged.get(instance_id) != problem:
                _log.warning(
                    "the instance %s is not offered to xDS clients: %s",
                    one_line(instance_id),
                    one_line(problem),
                )
        self._logged = dict(problems)
