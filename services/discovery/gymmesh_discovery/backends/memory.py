"""The registry in this process's memory: for one machine, tests and the embedded mesh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.backends.leases import Leases
from gymmesh_discovery.counted import count_instances
from gymmesh_discovery.view import Change

_SWEEP_S: Final = 1.0


class MemoryRegistry(RegistryBackend):
    """Leases in memory, swept once a second. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._leases = Leases(clock, self._leased)
        self._view = self._leases.view

    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        return self._leases.register(instance, lease_s, held_lease)

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        return self._leases.renew(lease_id, health)

    async def deregister(self, lease_id: str) -> None:
        self._leases.deregister(lease_id)

    def sweep(self) -> None:
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
