"""What a registry backend does for the discovery service."""

from __future__ import annotations

from typing import Protocol

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.watchers import Watcher


class RegistryBackend(Protocol):
    """Keeps leases and notifies watchers of changes. Raises MeshError for every failure."""

    @property
    def shared(self) -> bool:
        """Whether other processes register in the same place, so that a service must watch it."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        """Lists an instance; returns the lease and its length in seconds."""

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Extends a lease; returns its length in seconds."""

    async def deregister(self, lease_id: str) -> None:
        """Gives a lease back."""

    def snapshot(self, service: str, name: str) -> tuple[int, list[discovery_pb2.Instance]]:
        """The registry's version and the matching instances, by id."""

    def subscribe(self) -> Watcher:
        """Every change from this call on."""
