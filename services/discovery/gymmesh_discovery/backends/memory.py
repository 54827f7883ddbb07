"""The registry in this process's memory: for one machine, tests and the embedded mesh."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.counted import count_instances
from gymmesh_discovery.view import (
    Change,
    InstanceExistsError,
    LeaseNotFoundError,
    RegistryView,
)
from gymmesh_runtime.errors import MeshError

_SWEEP_S: Final = 1.0
_WATCHER_QUEUE: Final = 1024


class MemorySubscription:
    """A bounded queue of changes; one that overflows holds a single None instead."""

    def __init__(self, watchers: set[MemorySubscription]) -> None:
        self._watchers = watchers
        self._queue: asyncio.Queue[Change | None] = asyncio.Queue(_WATCHER_QUEUE)

    async def next(self) -> Change | None:
        """The next change; None says that some were missed."""
        return await self._queue.get()

    def put(self, change: Change) -> None:
        """Adds a change."""
        if self._queue.full():
            self.miss()
        else:
            self._queue.put_nowait(change)

    def miss(self) -> None:
        """Says that changes were missed, in place of those that wait."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    def close(self) -> None:
        """Ends the subscription."""
        self._watchers.discard(self)


class MemoryRegistry:
    """Leases in memory, swept once a second. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = RegistryView()
        self._clock = clock
        self._watchers: set[MemorySubscription] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts the sweeper."""
        self._sweeper = asyncio.create_task(self._sweep_forever())

    async def close(self) -> None:
        """Stops the sweeper."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None

    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        """Lists an instance. Raises INSTANCE_EXISTS."""
        lease_id = secrets.token_urlsafe(16)
        self.sweep()
        try:
            length, change = self._view.register(
                instance, lease_id, lease_s, self._clock(), held_lease=held_lease
            )
        except InstanceExistsError:
            raise MeshError(
                errors_pb2.ERROR_REASON_INSTANCE_EXISTS,
                f"another live instance is called '{instance.id}'; give this one another id",
                metadata={"instance_id": instance.id},
            ) from None
        self._publish(change)
        return lease_id, length

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Extends a lease. Raises LEASE_NOT_FOUND."""
        self.sweep()
        try:
            length, change = self._view.renew(lease_id, health, self._clock())
        except LeaseNotFoundError:
            raise MeshError(
                errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
                "the lease has run out or was never given; register again",
                # The lease id itself is the instance's secret and stays out.
            ) from None
        if change is not None:
            self._publish(change)
        return length

    async def deregister(self, lease_id: str) -> None:
        """Gives a lease back."""
        change = self._view.deregister(lease_id)
        if change is not None:
            self._publish(change)

    def snapshot(self, service: str, name: str) -> tuple[int, list[discovery_pb2.Instance]]:
        """The version and the matching instances."""
        self.sweep()
        return self._view.version, self._view.instances(service, name)

    def subscribe(self) -> MemorySubscription:
        """Every change from this call on."""
        subscription = MemorySubscription(self._watchers)
        self._watchers.add(subscription)
        return subscription

    def sweep(self) -> None:
        """Removes instances whose lease has run out."""
        for change in self._view.expire(self._clock()):
            self._publish(change)

    def _publish(self, change: Change) -> None:
        for watcher in self._watchers:
            watcher.put(change)
        count_instances(self._view.instances())

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()
