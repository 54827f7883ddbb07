"""The registry as a pure state machine: instances, leases, versions and changes.

It has no clock and does no I/O: the caller passes the time (seconds of any monotonic clock) and
delivers the changes. Invariants: an instance is listed exactly while it has a live lease; the
version grows by one with every change.
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
    """The lease expired, was ended, or never existed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the registry: a new, changed or removed instance.

    ``before`` is the previous instance with the same id; None for a new instance.
    """

    version: int
    instance: Instance
    removed: bool
    before: Instance | None = None


@dataclass(slots=True)
class Listing:
    """Instances by id. The version grows by one with every change."""

    version: int = 0
    _listed: dict[str, Instance] = field(default_factory=dict)

    def instances(self, service: str = "", name: str = "") -> list[Instance]:
        """The instances that match, by id. Empty arguments match all."""
        listed = (self._listed[key] for key in sorted(self._listed))
        return [instance for instance in listed if matches(instance, service, name)]

    def _list(self, instance: Instance) -> Change:
        """Adds an instance, or replaces the one with its id."""
        before = self._listed.get(instance.id)
        self._listed[instance.id] = instance
        self.version += 1
        return Change(self.version, instance, removed=False, before=before)

    def _remove(self, instance_id: str) -> Change:
        gone = self._listed.pop(instance_id)
        self.version += 1
        return Change(self.version, gone, removed=True, before=gone)


@dataclass(slots=True)
class _Lease:
    lease_id: str
    instance_id: str
    length_s: int
    expires_at: float


@dataclass(slots=True)
class RegistryView(Listing):
    """All registrations."""

    _by_lease: dict[str, _Lease] = field(default_factory=dict)
    _by_instance: dict[str, _Lease] = field(default_factory=dict)
    _none_due_before: float = math.inf  # a lease that is renewed runs out later, never sooner

    def register(
        self, instance: Instance, lease_id: str, asked_s: int, now: float, *, held_lease: str = ""
    ) -> tuple[int, Change]:
        """Lists an instance under a new lease; returns the lease's length and the change.

        ``held_lease`` is the lease that the caller already holds for the instance's id. Raises
        InstanceExistsError if another caller holds a live lease for the id. The same service at the
        same address is accepted: it restarted before its previous lease expired.
        """
        current = self._by_instance.get(instance.id)
        if current is not None:
            # One process at a time can listen at an address.
            same = place_of(self._listed[instance.id]) == place_of(instance)
            if current.lease_id != held_lease and not same:
                raise InstanceExistsError(instance.id)
            del self._by_lease[current.lease_id]
        length = lease_length(asked_s)
        listed = Instance()
        listed.CopyFrom(instance)
        if not listed.health:
            listed.health = discovery_pb2.HEALTH_SERVING
        lease = _Lease(lease_id, instance.id, length, now + length)
        self._none_due_before = min(self._none_due_before, lease.expires_at)
        self._by_lease[lease_id] = lease
        self._by_instance[instance.id] = lease
        return length, self._list(listed)

    def renew(
        self, lease_id: str, health: discovery_pb2.Health.ValueType, now: float
    ) -> tuple[int, Change | None]:
        """Extends a lease; returns its length, and the change if the health changed."""
        lease = self._by_lease.get(lease_id)
        if lease is None:
            raise LeaseNotFoundError(lease_id)
        lease.expires_at = now + lease.length_s
        listed = self._listed[lease.instance_id]
        if not health or health == listed.health:
            return lease.length_s, None
        updated = Instance()  # watchers may still hold the old one
        updated.CopyFrom(listed)
        updated.health = health
        return lease.length_s, self._list(updated)

    def deregister(self, lease_id: str) -> Change | None:
        """Ends a lease; returns None if there is no such lease."""
        lease = self._by_lease.pop(lease_id, None)
        if lease is None:
            return None
        del self._by_instance[lease.instance_id]
        return self._remove(lease.instance_id)

    def expire(self, now: float) -> list[Change]:
        """Removes the instances that were not renewed in time."""
        if now < self._none_due_before:  # asked at every renewal, of which there are many
            return []
        dead = [lease.lease_id for lease in self._by_lease.values() if lease.expires_at <= now]
        alive = (lease.expires_at for lease in self._by_lease.values() if lease.expires_at > now)
        self._none_due_before = min(alive, default=math.inf)
        return [change for lease_id in dead if (change := self.deregister(lease_id)) is not None]


def lease_length(asked_s: int) -> int:
    """The granted length of a lease in seconds, for the requested length. 0 requests no particular
    length.
    """
    return min(max(asked_s or DEFAULT_LEASE_S, SHORTEST_LEASE_S), LONGEST_LEASE_S)


def place_of(instance: Instance) -> tuple[str, str, str]:
    """Where an instance is. Two instances with the same place are one."""
    return instance.service, instance.name, instance.address


def matches(instance: Instance, service: str, name: str) -> bool:
    """Whether an instance has this kind and this name. Empty matches all."""
    return (not service or instance.service == service) and (not name or instance.name == name)
