"""DiscoveryService over a registry backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.backends.watchers import Watcher
from gymmesh_discovery.edges import Edge
from gymmesh_discovery.registry_view import Change, matches
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.names import check_name
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import IdentityConfig, may_register
from gymmesh_runtime.serving.service import Service

KIND: Final = "gymmesh.discovery.v1.DiscoveryService"
_PAGE: Final = 1000
_MAX_META_KEYS: Final = 64
_MAX_INSTANCE_BYTES: Final = 65_536
_NAMES: Final = ("id", "service", "name", "address", "contract_version", "metrics_address")


class DiscoveryService(Service):
    """The registry of a mesh."""

    kind = KIND

    def __init__(
        self,
        instance_id: str,
        backend: RegistryBackend | None = None,
        name: str = "registry",
        edges: Sequence[Edge] = (),
    ) -> None:
        self.instance_id = instance_id
        self.name = name
        self._backend: RegistryBackend = backend or MemoryRegistry()
        self.shared = self._backend.shared
        self._edges = edges
        self._watching: set[Watcher] = set()
        self._draining = False
        self._identities: Mapping[str, IdentityConfig] = {}

    def servicers(self) -> Mapping[str, object]:
        """Returns the service itself."""
        return {KIND: self}

    def extras(self) -> list[Callable[[Any], None]]:
        """Functions that add the edges' services, which are not in the contract, to a gRPC
        server.
        """
        return [add for edge in self._edges for add in edge.extras()]

    async def open(self, directory: PeerDirectory) -> None:
        """Opens the backend, then the edges."""
        self._identities = directory.credentials.config.identities
        # 0 from the start: an alert asks how much it grew.
        metrics.REGISTRY_EXPIRED.labels()
        metrics.REGISTRY_WATCHES.labels()
        metrics.REGISTRY_VIEW_AGE.labels()
        await self._backend.open()
        for edge in self._edges:
            await edge.open(self._backend, directory.credentials)

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Tells the edges where this process is, because a registry does not list itself."""
        for edge in self._edges:
            edge.served_as(instance)

    def drain(self, seconds: float) -> None:
        """Ends all streams. Watchers then connect to the next discovery service."""
        self._draining = True
        for watcher in self._watching:
            watcher.miss()
        for edge in self._edges:
            edge.drain()

    async def close(self) -> None:
        for edge in reversed(self._edges):
            await edge.close()
        await self._backend.close()

    async def Register(
        self, request: discovery_pb2.RegisterRequest, context: CallContext
    ) -> discovery_pb2.RegisterResponse:
        """Lists an instance. Raises INSTANCE_EXISTS, FIELD_INVALID, NOT_PERMITTED."""
        _check_instance(request.instance)
        may_register(self._identities, context.identity, request.instance.service, context.method)
        instance = discovery_pb2.Instance()
        instance.CopyFrom(request.instance)
        instance.health = _known(instance.health)
        lease_id, lease_s = await self._backend.register(
            instance, request.lease_s, request.lease_id
        )
        return discovery_pb2.RegisterResponse(lease_id=lease_id, lease_s=lease_s)

    async def Renew(
        self, request: discovery_pb2.RenewRequest, context: CallContext
    ) -> discovery_pb2.RenewResponse:
        """Extends a lease. Raises LEASE_NOT_FOUND."""
        lease_s = await self._backend.renew(request.lease_id, _known(request.health))
        return discovery_pb2.RenewResponse(lease_s=lease_s)

    async def Deregister(
        self, request: discovery_pb2.DeregisterRequest, context: CallContext
    ) -> discovery_pb2.DeregisterResponse:
        """Ends a lease."""
        await self._backend.deregister(request.lease_id)
        return discovery_pb2.DeregisterResponse()

    async def ListInstances(
        self, request: discovery_pb2.ListInstancesRequest, context: CallContext
    ) -> discovery_pb2.ListInstancesResponse:
        """Lists a page of instances by id; the page token is the last id of the page before.

        Raises FIELD_INVALID for a negative page size.
        """
        if request.page_size < 0:
            raise field_invalid("page_size", "must not be negative")
        version, instances = self._backend.snapshot(request.service, request.name)
        rest = [instance for instance in instances if instance.id > request.page_token]
        size = min(request.page_size, _PAGE) if request.page_size > 0 else _PAGE
        page = rest[:size]
        return discovery_pb2.ListInstancesResponse(
            instances=page, next_page_token=page[-1].id if len(rest) > size else "", version=version
        )

    async def WatchInstances(
        self, request: discovery_pb2.WatchInstancesRequest, context: CallContext
    ) -> AsyncIterator[discovery_pb2.WatchInstancesResponse]:
        """Sends a snapshot, then every change. Raises DRAINING when the server shuts down."""
        if self._draining:
            raise _shutting_down()
        # Subscribed before the snapshot is taken, so that no change falls between.
        subscription = self._backend.subscribe()
        self._watching.add(subscription)
        watches = metrics.REGISTRY_WATCHES.labels()
        watches.inc()
        try:
            sent, snapshot = self._snapshot(request)
            yield snapshot
            while True:
                change = await subscription.next()
                if self._draining:
                    raise _shutting_down()
                if change is None:
                    sent, snapshot = self._snapshot(request)
                    yield snapshot
                elif change.version > sent:
                    sent = change.version
                    response = _response(change, request.service, request.name)
                    if response is not None:
                        yield response
        finally:
            self._watching.discard(subscription)
            watches.dec()
            subscription.close()

    def _snapshot(
        self, request: discovery_pb2.WatchInstancesRequest
    ) -> tuple[int, discovery_pb2.WatchInstancesResponse]:
        version, instances = self._backend.snapshot(request.service, request.name)
        snapshot = discovery_pb2.InstanceSnapshot(instances=instances)
        return version, discovery_pb2.WatchInstancesResponse(version=version, snapshot=snapshot)


def _response(
    change: Change, service: str, name: str
) -> discovery_pb2.WatchInstancesResponse | None:
    """A change as a watcher of a kind and name sees it; None when it doesn't concern it."""
    version = change.version
    if not change.removed and matches(change.instance, service, name):
        return discovery_pb2.WatchInstancesResponse(version=version, upserted=change.instance)
    # Gone, or registered anew under another kind or name: gone for this watcher.
    if change.before is not None and matches(change.before, service, name):
        return discovery_pb2.WatchInstancesResponse(version=version, removed_id=change.instance.id)
    return None


def _check_instance(instance: discovery_pb2.Instance) -> None:
    """Raises FIELD_INVALID for an instance that must not be listed."""
    for name in _NAMES:
        check_name(f"instance.{name}", getattr(instance, name))
    if " " in instance.address:
        raise field_invalid("instance.address", "has a space")
    if len(instance.meta) > _MAX_META_KEYS:
        raise field_invalid("instance.meta", f"has more than {_MAX_META_KEYS} keys")
    # Every watcher holds it.
    if instance.ByteSize() > _MAX_INSTANCE_BYTES:
        raise field_invalid("instance", f"exceeds {_MAX_INSTANCE_BYTES} bytes")


def _known(health: discovery_pb2.Health.ValueType) -> discovery_pb2.Health.ValueType:
    """The health; a value that this version of the contract lacks counts as unspecified."""
    return health if health in discovery_pb2.Health.values() else discovery_pb2.HEALTH_UNSPECIFIED


def _shutting_down() -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, "the registry is shutting down")
