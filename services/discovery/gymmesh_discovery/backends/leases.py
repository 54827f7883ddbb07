"""Leases that this process gives: the pure registry with a clock, ids and the contract's errors."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.view import (
    Change,
    InstanceExistsError,
    LeaseNotFoundError,
    RegistryView,
)
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError


class Leases:
    """Leases in memory. ``clock`` gives seconds; the caller delivers the changes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.view = RegistryView()

    def register(
        self, instance: discovery_pb2.Instance, lease_s: int, held_lease: str
    ) -> tuple[str, int, Change]:
        """Gives a lease: its id, its seconds and the change. Raises INSTANCE_EXISTS."""
        lease_id = secrets.token_urlsafe(16)
        try:
            length, change = self.view.register(
                instance, lease_id, lease_s, self._clock(), held_lease=held_lease
            )
        except InstanceExistsError:
            raise instance_exists(instance.id) from None
        return lease_id, length, change

    def renew(
        self, lease_id: str, health: discovery_pb2.Health.ValueType
    ) -> tuple[int, Change | None]:
        """Extends a lease: its seconds and the change, if it is one. Raises LEASE_NOT_FOUND."""
        try:
            return self.view.renew(lease_id, health, self._clock())
        except LeaseNotFoundError:
            raise MeshError(
                errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
                "the lease has run out or was never given; register again",
                # The lease id itself is the instance's secret and stays out.
            ) from None

    def expire(self) -> list[Change]:
        """Ends the leases that have run out, and counts them."""
        expired = self.view.expire(self._clock())
        metrics.REGISTRY_EXPIRED.inc(len(expired))
        return expired


def instance_exists(instance_id: str) -> MeshError:
    """The error for an id that another live instance has."""
    return MeshError(
        errors_pb2.ERROR_REASON_INSTANCE_EXISTS,
        f"another live instance is called '{instance_id}'; give this one another id",
        metadata={"instance_id": instance_id},
    )
