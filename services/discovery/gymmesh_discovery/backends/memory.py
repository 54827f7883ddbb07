"""The registry in this process's memory: for one machine, tests and the embedded mesh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.leases import Leases
from gymmesh_discovery.backends.watchers import Watcher, Watchers
from gymmesh_discovery.counted import count_instances
from gymmesh_discovery.view import Change, Listing
from gymmesh_runtime.waits import cancel_and_wait

_SWEEP_S: Final = 1.0


class MemoryRegistry:
    """Leases in memory, swept once a second. ``clock`` gives monotonic seconds."""

    #: Whether other processes register in the same place.
    shared: bool = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._watchers = Watchers()
        self._leases = Leases(clock, self._leased)
        self._view: Listing = self._leases.view
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts the sweeper."""
        self._sweeper = asyncio.create_task(self._sweep_forever())

    async def close(self) -> None:
        """Stops the sweeper."""
        await cancel_and_wait(self._sweeper)
        self._sweeper = None

    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        """Lists an instance. Raises INSTANCE_EXISTS."""
        return self._leases.register(instance, lease_s, held_lease)

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Extends a lease. Raises LEASE_NOT_FOUND."""
        return self._leases.renew(lease_id, health)

    async def deregister(self, lease_id: str) -> None:
        """Gives a lease back."""
        self._leases.deregister(lease_id)

    def snapshot(self, service: str, name: str) -> tuple[int, list[discovery_pb2.Instance]]:
        """The version and the matching instances."""
        self.sweep()
        return self._view.version, self._view.instances(service, name)

    def subscribe(self) -> Watcher:
        """Every change from this call on."""
        return self._watchers.subscribe()

    def sweep(self) -> None:
        """Removes instances whose lease has run out."""
        self._leases.sweep()

    def _leased(self, change: Change) -> None:
        self._watchers.publish([change])

    async def _sweep_forever(self) -> None:
        view, counted = self._view, 0
        while True:
            self.sweep()
            if counted != view.version:  # not at each change: a large mesh has many
                counted = view.version
                count_instances(view.instances())
            await asyncio.sleep(_SWEEP_S)
