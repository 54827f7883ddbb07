"""The interface of a registry backend, and the common code of all backends."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.watchers import Watcher, Watchers
from gymmesh_discovery.registry_view import Listing
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import cancel_and_wait

#: The contract's kinds. An instance may register any kind; a label takes no made-up values.
_KINDS: Final = frozenset(
    f"gymmesh.{noun}.v1.{noun.capitalize()}Service"
    for noun in ("agent", "discovery", "model", "relay", "resource", "run", "sandbox", "verify")
)
_HEALTH: Final = {
    discovery_pb2.HEALTH_SERVING: "serving",
    discovery_pb2.HEALTH_NOT_SERVING: "not_serving",
    discovery_pb2.HEALTH_DRAINING: "draining",
}


class RegistryBackend(ABC):
    """Stores leases and notifies watchers of changes. Raises MeshError for every failure."""

    #: Whether other processes register in the same place, so that a service must watch it.
    shared: bool = False
    _view: Listing

    def __init__(self) -> None:
        self._watchers = Watchers()
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts. Raises ConfigError."""
        self._sweeper = asyncio.create_task(self._sweep_forever())

    async def close(self) -> None:
        await cancel_and_wait(self._sweeper)
        self._sweeper = None

    @abstractmethod
    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        """Lists an instance; returns the lease and its length in seconds. Raises INSTANCE_EXISTS.

        ``held_lease`` is the lease that the caller already holds for the instance's id.
        """

    @abstractmethod
    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Extends a lease; returns its length in seconds. Raises LEASE_NOT_FOUND."""

    @abstractmethod
    async def deregister(self, lease_id: str) -> None:
        """Ends a lease and removes its instance."""

    @abstractmethod
    def sweep(self) -> None:
        """Removes instances whose lease expired."""

    def snapshot(self, service: str, name: str) -> tuple[int, list[discovery_pb2.Instance]]:
        """The registry's version and the matching instances, by id."""
        self.sweep()
        return self._view.version, self._view.instances(service, name)

    def subscribe(self) -> Watcher:
        """Returns a watcher that gets every change from this call on."""
        return self._watchers.subscribe()

    @abstractmethod
    async def _sweep_forever(self) -> None: ...


def instance_exists(instance_id: str) -> MeshError:
    """The error for an id that another live instance has."""
    return MeshError(
        errors_pb2.ERROR_REASON_INSTANCE_EXISTS,
        f"another live instance has the id '{instance_id}'; use another id",
        metadata={"instance_id": instance_id},
    )


def count_instances(instances: Iterable[discovery_pb2.Instance]) -> None:
    """Sets the metric of instances. Kinds outside the contract are counted together, as
    ``other``.
    """
    counts: Counter[tuple[str, ...]] = Counter(
        (one.service if one.service in _KINDS else "other", _HEALTH.get(one.health, "unknown"))
        for one in instances
    )
    metrics.INSTANCES.replace(counts)
