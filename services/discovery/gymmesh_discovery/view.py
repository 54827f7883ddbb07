"""The registry as a pure state machine: instances, leases, versions and changes.

No clock and no I/O: the caller passes the time (seconds of any monotonic
clock) and delivers the changes. Invariants: an instance is listed exactly while
it has a live lease; the version grows by one with every change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2

Instance = discovery_pb2.Instance

SHORTEST_LEASE_S: Final = 3
LONGEST_LEASE_S: Final = 300
DEFAULT_LEASE_S: Final = 15


class InstanceExistsError(Exception):
    """Another live instance has the id."""


class LeaseNotFoundError(Exception):
    """The lease ran out, was given back, or never was."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the registry: an instance that is new or different, or one that is gone.

    ``before`` is what stood under the id until then, None for a new one.
    """

    version: int
    instance: Instance
    removed: bool
    before: Instance | None = None


@dataclass(slots=True)
class _Lease:
    lease_id: str
    instance: Instance
    length_s: int
    expires_at: float


@dataclass(slots=True)
class RegistryView:
    """All registrations."""

    version: int = 0
    _by_lease: dict[str, _Lease] = field(default_factory=dict)
    _by_instance: dict[str, _Lease] = field(default_factory=dict)
    _none_due_before: float = math.inf  # a lease that is renewed runs out later, never sooner

    def register(
        self, instance: Instance, lease_id: str, asked_s: int, now: float, *, held_lease: str = ""
    ) -> tuple[int, Change]:
        """Lists an instance under a new lease; returns the lease's length and the change.

        ``held_lease`` is the lease that the caller holds for this id already.
        Raises InstanceExistsError when somebody else holds it: not the same service at the same
        address, which was started again before the lease of its past life ran out.
        """
        current = self._by_instance.get(instance.id)
        if current is not None and not _is_holder(current, instance, held_lease):
            raise InstanceExistsError(instance.id)
        if current is not None:
            del self._by_lease[current.lease_id]
        length = min(max(asked_s or DEFAULT_LEASE_S, SHORTEST_LEASE_S), LONGEST_LEASE_S)
        listed = Instance()
        listed.CopyFrom(instance)
        if not listed.health:
            listed.health = discovery_pb2.HEALTH_SERVING
        lease = _Lease(lease_id, listed, length, now + length)
        self._none_due_before = min(self._none_due_before, lease.expires_at)
        self._by_lease[lease_id] = lease
        self._by_instance[instance.id] = lease
        before = current.instance if current is not None else None
        return length, self._changed(listed, removed=False, before=before)

    def renew(
        self, lease_id: str, health: discovery_pb2.Health.ValueType, now: float
    ) -> tuple[int, Change | None]:
        """Extends a lease; returns its length and the change of health, if it is one."""
        lease = self._by_lease.get(lease_id)
        if lease is None:
            raise LeaseNotFoundError(lease_id)
        lease.expires_at = now + lease.length_s
        if not health or health == lease.instance.health:
            return lease.length_s, None
        updated = Instance()  # watchers may still hold the old one
        updated.CopyFrom(lease.instance)
        updated.health = health
        before, lease.instance = lease.instance, updated
        return lease.length_s, self._changed(updated, removed=False, before=before)

    def deregister(self, lease_id: str) -> Change | None:
        """Gives a lease back; None when it is not there."""
        lease = self._by_lease.pop(lease_id, None)
        if lease is None:
            return None
        del self._by_instance[lease.instance.id]
        return self._changed(lease.instance, removed=True, before=lease.instance)

    def expire(self, now: float) -> list[Change]:
        """Removes what has not been renewed in time."""
        if now < self._none_due_before:  # asked at every renewal, of which there are many
            return []
        dead = [lease.lease_id for lease in self._by_lease.values() if lease.expires_at <= now]
        alive = (lease.expires_at for lease in self._by_lease.values() if lease.expires_at > now)
        self._none_due_before = min(alive, default=math.inf)
        return [change for lease_id in dead if (change := self.deregister(lease_id)) is not None]

    def instances(self, service: str = "", name: str = "") -> list[Instance]:
        """The live instances that match (empty: any), by id."""
        listed = (self._by_instance[key].instance for key in sorted(self._by_instance))
        return [instance for instance in listed if matches(instance, service, name)]

    def _changed(self, instance: Instance, *, removed: bool, before: Instance | None) -> Change:
        self.version += 1
        return Change(self.version, instance, removed, before)


def _is_holder(lease: _Lease, instance: Instance, held_lease: str) -> bool:
    # One process at a time can listen at an address.
    return lease.lease_id == held_lease or place_of(lease.instance) == place_of(instance)


def place_of(instance: Instance) -> tuple[str, str, str]:
    """Where an instance is: two that have the same are one."""
    return instance.service, instance.name, instance.address


def matches(instance: Instance, service: str, name: str) -> bool:
    """Whether an instance is of a kind and name; empty means any."""
    return (not service or instance.service == service) and (not name or instance.name == name)
