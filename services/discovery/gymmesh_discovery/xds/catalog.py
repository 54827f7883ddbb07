"""The registry as xDS resources. Pure: no clock, no I/O.

Listeners, routes and clusters are the same for every name and never change. So they exist for each
possible name. If a client asks for a missing agent, it gets an empty list of endpoints at once, and
does not wait 15 seconds for a listener. Only endpoints change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import config_source_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from google.protobuf import any_pb2
from google.protobuf.message import Message

from gymmesh_discovery.xds.endpoints import (
    Instance,
    UnusableInstanceError,
    XdsEndpoint,
    assignment_of,
    endpoint_of,
)
from gymmesh_discovery.xds.names import (
    AFFINITY_HEADER,
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTE,
    XdsTarget,
    parse_target,
    targets_of,
)
from gymmesh_runtime.names import MAX_NAME

_KEPT: Final = 4096  # static resources
_LONGEST: Final = MAX_NAME + len("resource.")
# gRPC lets a client have 1,024 calls at a time to a cluster that says nothing.
_MOST_CALLS: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Resource:
    """An encoded resource; ``version`` is a digest of ``body``."""

    name: str
    version: str
    body: any_pb2.Any


class Catalog:
    """The resources that clients may subscribe to, made from the instances in the catalog.

    Changes take effect with ``commit``. ``version`` grows by one with each commit that changed
    something. ``problems`` maps ids of instances that cannot be offered to the reason.
    """

    def __init__(self) -> None:
        self.version = 0
        #: False while a registry that has just started may not know yet what is alive.
        self.settled = True
        self.problems: dict[str, str] = {}
        self._groups: dict[str, dict[str, XdsEndpoint]] = {}  # by group and instance id
        self._group_of: dict[str, str] = {}  # by instance id
        self._assignments: dict[str, Resource] = {}
        self._touched: set[str] = set()

    def put(self, instance: Instance) -> None:
        """Adds an instance, or replaces the one with its id."""
        try:
            endpoint = endpoint_of(instance)
            self.problems.pop(instance.id, None)
        except UnusableInstanceError as error:
            endpoint = None
            self.problems[instance.id] = str(error)
        before = self._group_of.get(instance.id)
        if before is not None and (endpoint is None or before != endpoint.group):
            self._drop(instance.id)
        if endpoint is not None:
            self._group_of[instance.id] = endpoint.group
            self._groups.setdefault(endpoint.group, {})[instance.id] = endpoint
            self._touched.add(endpoint.group)

    def remove(self, instance_id: str) -> None:
        """Removes an instance; an unknown id is ignored."""
        self.problems.pop(instance_id, None)
        if instance_id in self._group_of:
            self._drop(instance_id)

    def replace(self, instances: Iterable[Instance]) -> None:
        """Replaces all instances by those of a snapshot."""
        instances = list(instances)
        ids = {one.id for one in instances}
        for gone in [*(self._group_of.keys() - ids), *(self.problems.keys() - ids)]:
            self.remove(gone)
        for one in instances:
            self.put(one)

    def commit(self) -> bool:
        """Makes the changes visible; returns whether there are any."""
        changed = False
        for group in self._touched:
            members = self._groups.get(group)
            before = self._assignments.get(group)
            if members is None:
                changed |= self._assignments.pop(group, None) is not None
                continue
            after = _packed(group, assignment_of(group, members.values()))
            if before is None or before.version != after.version:
                self._assignments[group] = after
                changed = True
        self._touched.clear()
        self.version += changed
        return changed

    def find(self, type_url: str, name: str) -> Resource | None:
        """A resource; None for a name that cannot exist."""
        if type_url == ENDPOINTS:
            known = self._assignments.get(name)
            return known or (_no_endpoints(name) if len(name) <= _LONGEST else None)
        return _static(type_url, name)

    def has_endpoints(self, group: str) -> bool:
        """Whether a group has instances, whatever their health."""
        return group in self._assignments

    def names(self, type_url: str) -> Iterable[str]:
        """The names for a wildcard: the listeners or clusters of all registered names."""
        if type_url not in (LISTENER, CLUSTER):
            return ()
        return [target for group in self._assignments for target in targets_of(group)]

    def _drop(self, instance_id: str) -> None:
        group = self._group_of.pop(instance_id)
        members = self._groups[group]
        del members[instance_id]
        if not members:
            del self._groups[group]
        self._touched.add(group)


def _packed(name: str, message: Message) -> Resource:
    body = any_pb2.Any()
    body.Pack(message, deterministic=True)
    return Resource(name, blake2b(body.value, digest_size=8).hexdigest(), body)


@lru_cache(_KEPT)
def _no_endpoints(name: str) -> Resource:
    return _packed(name, endpoint_pb2.ClusterLoadAssignment(cluster_name=name))


@lru_cache(_KEPT)
def _static(type_url: str, name: str) -> Resource | None:
    target = parse_target(name)
    if target is None:
        return None
    if type_url == LISTENER:
        return _packed(name, _listener(name))
    if type_url == ROUTE:
        return _packed(name, _route(name, target))
    return _packed(name, _cluster(name, target))


def _listener(name: str) -> listener_pb2.Listener:
    """Refers to the route configuration of the same name."""
    manager = manager_pb2.HttpConnectionManager()
    manager.rds.route_config_name = name
    _by_this_stream(manager.rds.config_source)
    router = manager.http_filters.add(name="router")
    router.typed_config.Pack(router_pb2.Router())
    listener = listener_pb2.Listener(name=name)
    listener.api_listener.api_listener.Pack(manager)
    return listener


def _route(name: str, target: XdsTarget) -> route_pb2.RouteConfiguration:
    """Sends every call to the cluster of the same name."""
    action = route_components_pb2.RouteAction(cluster=name)
    if target.affinity:
        action.hash_policy.add().header.header_name = AFFINITY_HEADER
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix=""), route=action
    )
    host = route_components_pb2.VirtualHost(name=name, domains=["*"], routes=[route])
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=[host])


def _cluster(name: str, target: XdsTarget) -> cluster_pb2.Cluster:
    """Round robin, or ring hash, over the endpoints of the group."""
    cluster = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS)
    cluster.eds_cluster_config.service_name = target.group
    _by_this_stream(cluster.eds_cluster_config.eds_config)
    if target.affinity:
        cluster.lb_policy = cluster_pb2.Cluster.RING_HASH
        cluster.ring_hash_lb_config.minimum_ring_size.value = 1024
        cluster.ring_hash_lb_config.maximum_ring_size.value = 4096
    cluster.circuit_breakers.thresholds.add().max_requests.value = _MOST_CALLS
    return cluster


def _by_this_stream(source: config_source_pb2.ConfigSource) -> None:
    source.ads.SetInParent()
    source.resource_api_version = config_source_pb2.V3
