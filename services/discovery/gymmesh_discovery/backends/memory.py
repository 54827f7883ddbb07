"""The registry in this process's memory: for one machine, tests and the embedded mesh."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import RegistryBackend, count_instances, instance_exists
from gymmesh_discovery.registry_view import (
    Change,
    InstanceExistsError,
    LeaseNotFoundError,
    Listing,
    RegistryView,
)
from gymmesh_runtime.errors import MeshError

_SWEEP_S: Final = 1.0


class MemoryRegistry(RegistryBackend):
    """Leases in memory, swept once a second. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._leases = RegistryView()
        self._view: Listing = self._leases

    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        self.sweep()
        lease_id = secrets.token_urlsafe(16)
        try:
            length, change = self._leases.register(
                instance, lease_id, lease_s, self._clock(), held_lease=held_lease
            )
        except InstanceExistsError:
            raise instance_exists(instance.id) from None
        self._leased(change)
        return lease_id, length

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        self.sweep()
        try:
            length, change = self._leases.renew(lease_id, health, self._clock())
        except LeaseNotFoundError:
            raise MeshError(
                errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
                "the lease expired or never existed; register again",
                # The lease id itself is the instance's secret and stays out.
            ) from None
        if change is not None:
            self._leased(change)
        return length

    async def deregister(self, lease_id: str) -> None:
        change = self._leases.deregister(lease_id)
        if change is not None:
            self._leased(change)

    def sweep(self) -> None:
        expired = self._leases.expire(self._clock())
        metrics.REGISTRY_EXPIRED.inc(len(expired))
        for change in expired:
            self._leased(change)

    def _leased(self, change: Change) -> None:
        """Publishes a change among the leases."""
        self._watchers.publish([change])

    async def _sweep_forever(self) -> None:
        view, counted = self._view, 0
        while True:
            self.sweep()
            if counted != view.version:  # not at each change: a large mesh has many
                counted = view.version
                count_instances(view.instances())
            await asyncio.sleep(_SWEEP_S)
