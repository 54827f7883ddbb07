"""The mesh's instances according to Consul's answers. Pure: the caller passes the time.

Each answer lists all instances with one service name. Invariants: an id is listed once; the version
grows by one with every change. After ``interrupted``, instances that the answers lack stay listed
for a grace period, because a Consul that lost its memory has to hear from the services first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.registry_view import Change, Listing

Instance = discovery_pb2.Instance


@dataclass(slots=True)
class _Entry:
    listed_as: str  # the service name in Consul
    confirmed: bool = True  # by the newest answer about its name


@dataclass(slots=True)
class ConsulView(Listing):
    """The instances by id. ``grace_s`` is in seconds."""

    grace_s: float = field(kw_only=True)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _grace_until: float = 0.0

    def interrupted(self, now: float) -> None:
        """Consul was unreachable, or its index decreased: Consul may have forgotten instances."""
        self._grace_until = now + self.grace_s

    def names(self, names: Collection[str], now: float) -> list[Change]:
        """Applies the list of all service names."""
        gone = [key for key, one in self._entries.items() if one.listed_as not in names]
        return self._absent(gone, now)

    def take(self, listed_as: str, instances: Sequence[Instance], now: float) -> list[Change]:
        """Applies an answer about one service name."""
        given: dict[str, Instance] = {}
        for instance in instances:
            # Two nodes may list one id: the one that takes calls counts.
            if instance.id not in given or not _serves(given[instance.id]):
                given[instance.id] = instance
        gone = [
            key
            for key, one in self._entries.items()
            if one.listed_as == listed_as and key not in given
        ]
        changes = self._absent(gone, now)
        for instance in given.values():
            changes += self._put(listed_as, instance)
        return changes

    def expire(self, now: float) -> list[Change]:
        """Removes absent instances whose grace period is over."""
        if now < self._grace_until:
            return []
        return self._absent([key for key, one in self._entries.items() if not one.confirmed], now)

    def get(self, instance_id: str) -> Instance | None:
        """The instance with this id."""
        return self._listed.get(instance_id)

    def _absent(self, keys: Collection[str], now: float) -> list[Change]:
        if now < self._grace_until:
            for key in keys:
                self._entries[key].confirmed = False
            return []
        for key in keys:
            del self._entries[key]
        return [self._remove(key) for key in keys]

    def _put(self, listed_as: str, instance: Instance) -> list[Change]:
        entry = self._entries.get(instance.id)
        elsewhere = entry is not None and entry.confirmed and entry.listed_as != listed_as
        if elsewhere and _serves(self._listed[instance.id]):
            return []  # listed twice: the one that takes calls stays
        self._entries[instance.id] = _Entry(listed_as)
        return [] if self._listed.get(instance.id) == instance else [self._list(instance)]


def _serves(instance: Instance) -> bool:
    return instance.health == discovery_pb2.HEALTH_SERVING
