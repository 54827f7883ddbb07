"""Leases that this process gives: the pure registry with a clock, ids and the contract's errors."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.view import Change, InstanceExistsError, LeaseNotFoundError, RegistryView
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError


class Leases:
    """Leases in memory.

    Args:
        clock: gives seconds.
        deliver: called with each change.
    """

    def __init__(self, clock: Callable[[], float], deliver: Callable[[Change], None]) -> None:
        self._clock = clock
        self._deliver = deliver
        self.view = RegistryView()

    def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int]:
        """Gives a lease: its id and its seconds. Raises INSTANCE_EXISTS."""
        self.sweep()
        lease_id = secrets.token_urlsafe(16)
        try:
            length, change = self.view.register(
                instance, lease_id, lease_s, self._clock(), held_lease=held_lease
            )
        except InstanceExistsError:
            raise instance_exists(instance.id) from None
        self._deliver(change)
        return lease_id, length

    def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Extends a lease, by so many seconds. Raises LEASE_NOT_FOUND."""
        self.sweep()
        try:
            length, change = self.view.renew(lease_id, health, self._clock())
        except LeaseNotFoundError:
            raise MeshError(
                errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
                "the lease has run out or was never given; register again",
                # The lease id itself is the instance's secret and stays out.
            ) from None
        if change is not None:
            self._deliver(change)
        return length

    def deregister(self, lease_id: str) -> None:
        change = self.view.deregister(lease_id)
        if change is not None:
            self._deliver(change)

    def sweep(self) -> None:
        """Ends the leases that have run out, and counts them."""
        expired = self.view.expire(self._clock())
        metrics.REGISTRY_EXPIRED.inc(len(expired))
        for change in expired:
            self._deliver(change)


def instance_exists(instance_id: str) -> MeshError:
    """The error for an id that another live instance has."""
    return MeshError(
        errors_pb2.ERROR_REASON_INSTANCE_EXISTS,
        f"another live instance is called '{instance_id}'; give this one another id",
        metadata={"instance_id": instance_id},
    )
