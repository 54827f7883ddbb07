"""RelayService: accepts offers of instances that dialled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gymmesh.relay.v1 import relay_pb2
from gymmesh_relay import metrics
from gymmesh_relay.config import RelayConfig
from gymmesh_relay.instance import OfferedInstance, RelayPlace, draining
from gymmesh_relay.offers import OFFER, check_name_allowed, check_offer
from gymmesh_runtime.binding import not_offered
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import queue_full
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import IdentityConfig, may_register
from gymmesh_runtime.serving.service import Service, ServiceHost
from gymmesh_runtime.wire import Exchange

KIND: Final = "gymmesh.relay.v1.RelayService"


class RelayService(Service):
    """A relay, and the instances that are offered at it.

    In a process that serves no other process, such as an embedded mesh, the relay does nothing.
    """

    kind = KIND

    def __init__(self, config: RelayConfig, name: str, instance_id: str) -> None:
        self.name = name
        self.instance_id = instance_id
        self._config = config
        self._host: ServiceHost | None = None
        self._place: RelayPlace | None = None
        self._identities: Mapping[str, IdentityConfig] = {}
        self._instances: dict[str, OfferedInstance] = {}
        self._draining = False

    def servicers(self) -> Mapping[str, object]:
        return {KIND: self}

    def hosted(self, host: ServiceHost) -> None:
        self._host = host

    async def open(self, directory: PeerDirectory) -> None:
        """Opens nothing: a relay listens for an instance when the instance is offered."""
        self._identities = directory.credentials.config.identities
        metrics.RELAY_EXPIRED.labels()
        metrics.RELAY_WAITING.labels()
        if self._host is not None:
            self._place = RelayPlace(self._host, directory.credentials, self.instance_id)

    def renew_soon(self) -> None:
        for one in self._instances.values():
            one.renew_soon()

    def drain(self, seconds: float) -> None:
        """Refuses offers and new calls. Instances offer themselves to the next relay."""
        self._draining = True
        for one in list(self._instances.values()):
            one.drain()

    async def close(self) -> None:
        self._draining = True
        for one in list(self._instances.values()):
            await one.close()

    async def Offer(
        self, request: relay_pb2.OfferRequest, context: CallContext
    ) -> relay_pb2.OfferResponse:
        """Makes the caller an instance of the mesh; see relay.proto.

        Raises NOT_OFFERED for a plain call, FIELD_INVALID, NOT_PERMITTED, INSTANCE_EXISTS,
        QUEUE_FULL, DRAINING, and PEER_UNAVAILABLE when the registry can't be reached.
        """
        exchange = context.connection
        if not isinstance(exchange, Exchange) or self._place is None:
            raise not_offered(f"{OFFER} as a plain call")
        check_offer(request)
        may_register(self._identities, context.identity, request.services[0], OFFER)
        check_name_allowed(self._config.offers, request.name, context.identity)
        if self._draining:
            raise draining()
        instance = self._instances.get(request.instance_id)
        if instance is None:
            instance = self._new(request, context.identity, self._place)
            kind = "new"
        else:
            instance.check_same(request, context.identity)
            kind = "again"
        # Before anything is awaited: a connection that breaks now is noticed.
        instance.attach(exchange, request.meta)
        await instance.listed()
        metrics.RELAY_OFFERS.labels(kind).inc()
        return relay_pb2.OfferResponse(address=instance.address, grace_s=self._config.grace_s)

    def _new(
        self, request: relay_pb2.OfferRequest, identity: str, place: RelayPlace
    ) -> OfferedInstance:
        limit = self._config.max_instances
        if len(self._instances) >= limit:
            raise queue_full(
                f"this relay has reached its limit of instances ({limit}); retry later, or raise "
                "'max_instances' in the relay's configuration",
                "instances",
                limit,
            )
        instance = OfferedInstance(request, identity, self._config, place, self._ended)
        self._instances[instance.id] = instance
        return instance

    def _ended(self, instance: OfferedInstance) -> None:
        if self._instances.get(instance.id) is instance:
            del self._instances[instance.id]
