"""What Consul's answers say of the mesh, put together. Pure: the caller passes the time.

The answers come by service name, each the whole truth about its name. Invariants: an id is listed
once; the version grows by one with every change. After ``interrupted`` what the answers lack stays
for a grace: a Consul that lost its memory first hears from the services again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.view import Change, matches

Instance = discovery_pb2.Instance


@dataclass(slots=True)
class _Known:
    instance: Instance
    listed_as: str  # the service name in Consul
    confirmed: bool = True  # by the newest answer about its name


@dataclass(slots=True)
class ConsulView:
    """The instances by id. ``grace_s`` is in seconds."""

    grace_s: float
    version: int = 0
    _known: dict[str, _Known] = field(default_factory=dict)
    _grace_until: float = 0.0

    def interrupted(self, now: float) -> None:
        """Consul was away, or its index went back: it may have forgotten instances."""
        self._grace_until = now + self.grace_s

    def names(self, names: Collection[str], now: float) -> list[Change]:
        """Takes the list of all service names."""
        gone = [key for key, one in self._known.items() if one.listed_as not in names]
        return self._absent(gone, now)

    def take(self, listed_as: str, instances: Sequence[Instance], now: float) -> list[Change]:
        """Takes an answer about one service name."""
        given: dict[str, Instance] = {}
        for instance in instances:
            # Two nodes may list one id: the one that takes calls counts.
            if instance.id not in given or not _serves(given[instance.id]):
                given[instance.id] = instance
        gone = [
            key
            for key, one in self._known.items()
            if one.listed_as == listed_as and key not in given
        ]
        changes = self._absent(gone, now)
        for instance in given.values():
            changes += self._put(listed_as, instance)
        return changes

    def expire(self, now: float) -> list[Change]:
        """Removes what was absent and whose grace is over."""
        if now < self._grace_until:
            return []
        return self._absent([key for key, one in self._known.items() if not one.confirmed], now)

    def get(self, instance_id: str) -> Instance | None:
        """The instance with this id."""
        known = self._known.get(instance_id)
        return None if known is None else known.instance

    def instances(self, service: str = "", name: str = "") -> list[Instance]:
        """Those that match (empty: any), by id."""
        listed = (self._known[key].instance for key in sorted(self._known))
        return [instance for instance in listed if matches(instance, service, name)]

    def _absent(self, keys: Collection[str], now: float) -> list[Change]:
        if now < self._grace_until:
            for key in keys:
                self._known[key].confirmed = False
            return []
        return [self._changed(self._known.pop(key).instance, removed=True) for key in keys]

    def _put(self, listed_as: str, instance: Instance) -> list[Change]:
        known = self._known.get(instance.id)
        if known is None:
            self._known[instance.id] = _Known(instance, listed_as)
            return [self._changed(instance, removed=False)]
        if known.listed_as != listed_as and known.confirmed and _serves(known.instance):
            return []  # listed twice: the one that takes calls stays
        before, known.confirmed = known.instance, True
        known.listed_as = listed_as
        if before == instance:
            return []
        known.instance = instance
        return [self._changed(instance, removed=False, before=before)]

    def _changed(
        self, instance: Instance, *, removed: bool, before: Instance | None = None
    ) -> Change:
        self.version += 1
        return Change(self.version, instance, removed, instance if removed else before)


def _serves(instance: Instance) -> bool:
    return instance.health == discovery_pb2.HEALTH_SERVING
