"""Joins the instances that Kubernetes lists with the instances that registered here. Pure.

Invariants: an id is listed once; the version grows by one with every change. While Kubernetes moves
an endpoint, it may be in two slices. A pod with two addresses is always in two slices. The view
always uses the same slice of the two. An instance that Kubernetes lists replaces a registration
with the same id, or of the same service at the same address, because Kubernetes knows the health of
its pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.registry_view import Change, Listing, place_of

Instance = discovery_pb2.Instance
_Place = tuple[str, str, str]


@dataclass(slots=True)
class KubernetesView(Listing):
    """The instances by id."""

    _slices: dict[str, list[Instance]] = field(default_factory=dict)
    _endpoints: dict[str, dict[str, Instance]] = field(default_factory=dict)  # by id, by slice
    _places: Counter[_Place] = field(default_factory=Counter)
    _leased: dict[str, Instance] = field(default_factory=dict)

    def put(self, slice_name: str, instances: Sequence[Instance]) -> list[Change]:
        """Applies a slice that is new or changed."""
        return self._refresh(self._put(slice_name, instances))

    def replace(self, slices: Mapping[str, Sequence[Instance]]) -> list[Change]:
        """Replaces all slices; slices that are not among them are removed."""
        ids: set[str] = set()
        for name in self._slices.keys() - slices.keys():
            ids |= self._put(name, [])
        for name, instances in slices.items():
            ids |= self._put(name, instances)
        return self._refresh(ids)

    def lease(self, change: Change) -> list[Change]:
        """Applies a change among the registrations."""
        instance = change.instance
        if change.removed:
            self._leased.pop(instance.id, None)
        else:
            self._leased[instance.id] = instance
        return self._refresh({instance.id})

    def endpoint(self, instance_id: str) -> Instance | None:
        """The instance that Kubernetes lists under an id."""
        found = self._endpoints.get(instance_id, {})
        return min(found.values(), key=_preference, default=None)

    def _put(self, slice_name: str, instances: Sequence[Instance]) -> set[str]:
        """Stores a slice; returns the ids that it had or has."""
        before = self._slices.pop(slice_name, [])
        for instance in before:
            found = self._endpoints.get(instance.id, {})
            found.pop(slice_name, None)
            if not found:
                self._endpoints.pop(instance.id, None)
            place = place_of(instance)
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]
        if instances:
            self._slices[slice_name] = list(instances)
        for instance in instances:
            self._endpoints.setdefault(instance.id, {})[slice_name] = instance
        self._places.update(map(place_of, instances))
        return {instance.id for instance in (*before, *instances)}

    def _refresh(self, ids: Iterable[str]) -> list[Change]:
        """The changes that come of it; registrations may have been hidden, or are no longer."""
        changes = []
        for instance_id in sorted({*ids, *self._leased}):
            before = self._listed.get(instance_id)
            now = self.endpoint(instance_id) or self._registered(instance_id)
            if now is None and before is not None:
                changes.append(self._remove(instance_id))
            elif now is not None and now != before:
                changes.append(self._list(now))
        return changes

    def _registered(self, instance_id: str) -> Instance | None:
        instance = self._leased.get(instance_id)
        hidden = instance is not None and self._places[place_of(instance)] > 0
        return None if hidden else instance


def _preference(instance: Instance) -> tuple[bool, bool, str]:
    serves = instance.health == discovery_pb2.HEALTH_SERVING
    return not serves, instance.address.startswith("["), instance.address
