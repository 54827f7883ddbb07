"""The instances of services that a process knows, and the peers by which it calls them.

A service looks up an instance by kind and name, and gets a peer: an object with that service's RPCs
as methods. A peer has the same methods for an instance in this process and for an instance in
another process.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import CHECK_S, Credentials
from gymmesh_runtime.telemetry.tracing import traced
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_runtime.wire import (
    DirectPeer,
    MuxConnection,
    MuxPeer,
    PeerChannel,
    PlainPeer,
    Unreached,
    keepalive_allowed,
)

Instance = discovery_pb2.Instance

#: How instances in other processes are called: over the mux where they offer it, or
#: by plain RPCs only.
TransportName: TypeAlias = Literal["auto", "plain"]

# With these a call was not begun. A plain RPC that broke off ends with the first as well.
_NOT_TAKEN: Final = frozenset(
    (errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, errors_pb2.ERROR_REASON_DRAINING)
)
# More affinities than this are forgotten, and chosen for anew.
_MOST_CHOSEN: Final = 65_536


class PeerDirectory:
    """The instances that this process knows, and their peers.

    ``watched``: the directory follows a registry, so it can wait for an instance to appear.
    ``outdated``: that registry is unreachable at the moment. ``transport``: how instances in other
    processes are called. ``credentials``: what this process shows to them.
    """

    def __init__(
        self,
        *,
        watched: bool = False,
        transport: TransportName = "auto",
        credentials: Credentials | None = None,
    ) -> None:
        self._instances: dict[str, Instance] = {}
        # By instance and service; the main one is there without a name, too.
        self._direct: dict[str, Mapping[str | None, Any]] = {}
        self._plain: dict[tuple[str, str], PlainPeer] = {}  # by address and service
        self._muxed: dict[tuple[str, str], Any] = {}  # by address and service
        self._connections: dict[str, MuxConnection] = {}  # by address
        self.transport = transport
        self.credentials = credentials or Credentials()
        self._version = self.credentials.refresh()
        self._renewing: asyncio.Task[None] | None = None
        self._unreached = Unreached()
        # By address; several to one target would share a connection anyway.
        self._channels: dict[str, PeerChannel] = {}
        self._keepalives: Mapping[str, int] = {}  # how often servers may be pinged, by address
        self._turn = 0
        #: Grows whenever an instance comes, goes or changes: what was found out about them before
        #: may not hold any more.
        self.changes = 0
        self._found: dict[tuple[str, str], list[Instance]] = {}
        self._chosen: dict[tuple[str, str, str], Instance] = {}  # the last one is the affinity
        self._watched = watched
        #: Whether instances may have come or gone since: whoever follows a registry sets it when
        #: the connection breaks. `replace` clears it.
        self.outdated = False
        self._changed = asyncio.Event()

    def add_direct(self, instance: Instance, servicers: Mapping[str, object]) -> None:
        """Adds an instance whose servicers live in this process."""
        peers: dict[str | None, Any] = {
            service: traced(DirectPeer(Binding(service, servicer)))
            for service, servicer in servicers.items()
        }
        peers[None] = peers.get(instance.service)
        self._direct[instance.id] = peers
        self._take({**self._instances, instance.id: instance})

    def upsert(self, instance: Instance) -> None:
        """Adds an instance, or replaces the one with its id. Instances in this process are not
        replaced.
        """
        if instance.id not in self._direct:
            # The news is from the instance itself, or from a registry that reaches it.
            self._unreached.reached(instance.address)
            self._take({**self._instances, instance.id: instance})

    def remove(self, instance_id: str) -> None:
        """Removes an instance in another process. Any other id is ignored."""
        if instance_id in self._instances and instance_id not in self._direct:
            rest = {key: one for key, one in self._instances.items() if key != instance_id}
            self._take(rest)

    def replace(self, instances: Iterable[Instance]) -> None:
        """Replaces all instances in other processes by those of a snapshot."""
        self.outdated = False
        local = {key: known for key, known in self._instances.items() if key in self._direct}
        self._take({instance.id: instance for instance in instances} | local)

    def instances(self) -> list[Instance]:
        """All known instances, by id."""
        return [self._instances[key] for key in sorted(self._instances)]

    def serving(self, service: str, name: str) -> Sequence[Instance]:
        """The instances of a kind and name that accept calls."""
        found = self._found.get((service, name))
        if found is None:
            found = [
                instance
                for instance in self._instances.values()
                if instance.name == name
                and instance.service == service
                and instance.health == discovery_pb2.HEALTH_SERVING
            ]
            # What is not there is asked for too seldom, and under too many names, to be kept.
            if found:
                self._found[service, name] = found
        return found

    async def instead(
        self, instance: Instance, error: MeshError, *, affinity: str = "", timeout: float = 5.0
    ) -> Instance | None:
        """Another instance of the same name, for a call that failed at this instance with `error`.
        Later calls also avoid this instance. None: no other instance can be reached, or another
        instance would not help with this error.

        While the directory is outdated, the replacement may be unknown: waits for it, up to
        ``timeout`` seconds.
        """
        if error.reason not in _NOT_TAKEN or instance.id in self._direct:
            return None
        self._unreached.missed(instance.address)
        other = self._other_than(instance, affinity)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while other is None and self.outdated:
                    await self._changed.wait()
                    other = self._other_than(instance, affinity)
        return other

    def passes_over(self, instance: Instance) -> bool:
        """Whether calls should avoid this instance at the moment."""
        return self._unreached.passes_over(instance.address)

    async def pick(
        self, service: str, name: str, *, affinity: str = "", timeout: float = 5.0
    ) -> Instance:
        """Chooses a serving instance of a kind and name.

        Calls with the same ``affinity`` get the same instance for as long as it serves (rendezvous
        hashing). Without ``affinity``, instances take turns. Both choices follow the instances'
        weights. An instance that was unreachable recently is avoided if there are others. In a
        watched directory, waits up to ``timeout`` seconds for an instance to appear. Raises
        SERVICE_NOT_FOUND.
        """
        chosen = self.choose(service, name, affinity=affinity)
        if chosen is None and self._watched:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while not self.serving(service, name):
                        await self._changed.wait()
            chosen = self.choose(service, name, affinity=affinity)
        if chosen is None:
            raise self._not_found(service, name)
        return chosen

    async def find(
        self, service: str, name: str, instance_id: str, *, timeout: float = 5.0
    ) -> Instance | None:
        """The serving instance with this id; None if it is not known. In a watched directory, waits
        up to ``timeout`` seconds for it to appear.
        """
        found = self._serving_as(service, name, instance_id)
        if found is None and self._watched:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while found is None:
                        await self._changed.wait()
                        found = self._serving_as(service, name, instance_id)
        return found

    def choose(self, service: str, name: str, *, affinity: str = "") -> Instance | None:
        """Chooses like `pick`, but does not wait; None if no instance is available now."""
        candidates = self._found.get((service, name)) or self.serving(service, name)
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            return None
        unreached = self._unreached
        if not unreached:
            return self._kept_or_one_of(candidates, affinity)
        near = [one for one in candidates if not unreached.passes_over(one.address)]
        chosen = self._one_of(near or candidates, affinity)
        unreached.tries(chosen.address)
        return chosen

    def peer(self, instance: Instance, service: str | None = None) -> Any:
        """Returns the peer for an instance: an object with the RPCs as methods.

        ``service`` defaults to the instance's main service. Raises NOT_OFFERED
        when an instance in this process does not have that service.
        """
        direct = self._direct.get(instance.id)
        peer = None if direct is None else direct.get(service or None)
        if peer is not None:
            return peer
        service = service or instance.service
        if direct is None:
            if self.transport == "plain":
                return traced(self.plain_peer(instance.address, service))
            return self._mux_peer(instance.address, service)
        raise MeshError(
            errors_pb2.ERROR_REASON_NOT_OFFERED,
            f"the instance '{instance.id}' does not offer {service}",
            metadata={"method": service},
        )

    def open_addresses(self) -> list[str]:
        """The addresses with an open channel, sorted."""
        return sorted(address for address, one in self._channels.items() if one.is_open)

    async def close(self) -> None:
        await cancel_and_wait(self._renewing)
        self._renewing = None
        self._plain.clear()
        self._muxed.clear()
        for open_ones in (self._connections, self._channels):
            closing = [one.close() for one in open_ones.values()]
            open_ones.clear()
            await asyncio.gather(*closing)

    def plain_peer(self, address: str, service: str) -> PlainPeer:
        """Returns a peer that calls a service at an address by plain RPCs, never over the mux."""
        peer = self._plain.get((address, service))
        if peer is None:
            if self._renewing is None and self.credentials.encrypts:
                self._renewing = asyncio.create_task(self._renew_for_ever())
            peer = self._plain[address, service] = PlainPeer(self._channel(address), service)
        return peer

    def _channel(self, address: str) -> PeerChannel:
        channel = self._channels.get(address)
        if channel is None:
            channel = PeerChannel(address, self.credentials, self._unreached)
            channel.keepalive_s = self._keepalives.get(address)
            self._channels[address] = channel
        return channel

    def _mux_peer(self, address: str, service: str) -> Any:
        peer = self._muxed.get((address, service))
        if peer is None:
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = MuxConnection(self._channel(address))
            plain = self.plain_peer(address, service)
            peer = self._muxed[address, service] = traced(MuxPeer(connection, plain, service))
        return peer

    async def _renew_for_ever(self) -> None:
        """Connects anew whenever the certificates have changed; calls in flight go on."""
        while True:
            await asyncio.sleep(CHECK_S)
            version = await asyncio.to_thread(self.credentials.refresh)
            if version != self._version:
                self._version = version
                for channel in self._channels.values():
                    channel.renew()
                for connection in self._connections.values():
                    connection.renew()

    def _serving_as(self, service: str, name: str, instance_id: str) -> Instance | None:
        return next((one for one in self.serving(service, name) if one.id == instance_id), None)

    def _other_than(self, instance: Instance, affinity: str) -> Instance | None:
        """Another instance of the same name that serves and is not passed over."""
        serving = self.serving(instance.service, instance.name)
        others = [one for one in serving if one.id != instance.id and not self.passes_over(one)]
        return self._one_of(others, affinity) if others else None

    def _kept_or_one_of(self, candidates: Sequence[Instance], affinity: str) -> Instance:
        """As `_one_of`, remembered until instances change: each call of a rollout comes here."""
        key = (candidates[0].service, candidates[0].name, affinity)
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._one_of(candidates, affinity)
            if affinity:
                if len(self._chosen) >= _MOST_CHOSEN:
                    self._chosen.clear()
                self._chosen[key] = chosen
        return chosen

    def _one_of(self, candidates: Sequence[Instance], affinity: str) -> Instance:
        if affinity:
            return max(candidates, key=lambda one: _score(affinity, one))
        self._turn += 1
        if all(one.weight == candidates[0].weight for one in candidates):
            return candidates[self._turn % len(candidates)]
        return max(candidates, key=lambda one: _score(str(self._turn), one))

    def _take(self, instances: dict[str, Instance]) -> None:
        before = {one.address for one in self._instances.values()}
        after = {one.address for one in instances.values()}
        self._instances = instances
        self.changes += 1
        self._found, self._chosen = {}, {}
        self._keepalives = {
            one.address: seconds
            for one in instances.values()
            if (seconds := keepalive_allowed(one.meta)) is not None
        }
        for address, channel in self._channels.items():
            channel.keepalive_s = self._keepalives.get(address)
        for held in (self._channels, self._connections):
            for address in held.keys() & (before - after):
                held[address].retire()
            for address in held.keys() & (after - before):
                held[address].restore()
        # Wakes all waiters; those that still lack something wait on the new event.
        self._changed.set()
        self._changed = asyncio.Event()

    def _not_found(self, service: str, name: str) -> MeshError:
        known = sorted({one.name for one in self._instances.values() if one.service == service})
        kind = service.rpartition(".")[2].removesuffix("Service").lower()
        near = difflib.get_close_matches(name, known, n=1)
        if name in known:
            hint = (
                f"; '{name}' is registered, but accepts no calls (its instances are starting, "
                "unhealthy or draining)"
            )
        elif near:
            hint = f"; did you mean '{near[0]}'?"
        else:
            hint = f"; known {kind} services: {', '.join(known) or 'none'}"
        return MeshError(
            errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND,
            f"no {kind} service named '{name}' is serving{hint}",
            metadata={"service": service, "name": name, "known": ", ".join(known)},
        )


def _score(affinity: str, instance: Instance) -> float:
    """The rank of an instance for this affinity: the highest is chosen.

    Weighted rendezvous hashing: with u uniform in (0, 1), the largest of -w / ln(u) falls to each
    instance in proportion to its weight w (C. Schindelhauer and G. Schomaker, "Weighted
    Distributed Hash Tables", SPAA 2005).
    """
    # A CRC would do badly here: it is linear, so that the ranking of the instances
    # follows a fixed pattern and one of three gets half of the load.
    text = f"{affinity}\0{instance.id}".encode(errors="surrogatepass")
    drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    uniform = ((drawn >> 12) + 0.5) / 2.0**52  # never 0 nor 1
    return -(instance.weight or 1) / math.log(uniform)
