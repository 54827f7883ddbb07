"""One offered instance: its port, registration, connection, and waiting calls."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.relay.v1 import relay_pb2
from gymmesh_relay import metrics
from gymmesh_relay.config import RelayConfig, ports_to_try
from gymmesh_relay.forwarder import Forwarder
from gymmesh_runtime.addresses import at_port
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.errors import MeshError, queue_full, unavailable
from gymmesh_runtime.security import Credentials
from gymmesh_runtime.serving import Registration
from gymmesh_runtime.serving.service import ServiceHost
from gymmesh_runtime.timers import cancel_and_wait, first_of
from gymmesh_runtime.wire import KEEPALIVE_KEY, KEEPALIVE_S, Exchange, MeshServer, OutboxClosed

_log = logging.getLogger("gymmesh.relay")

# Longer than a lease lasts.
_REGISTER_S: Final = 25.0
# How long a leaving instance's calls may take to end.
_LEAVE_S: Final = 3600.0
_STOP_S: Final = 1.0
_QUEUE: Final = "relay"
#: In the registry, the key of the relay's own instance id.
_RELAY: Final = "relay"

#: connected; disconnected: for up to `grace_s`; leaving: ends its calls; gone: deregistered.
_State: TypeAlias = Literal["connected", "disconnected", "leaving", "gone"]


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """Where a relay listens for its instances and registers them, and the relay's own id."""

    host: ServiceHost
    credentials: Credentials
    relay_id: str


class OfferedInstance:
    """An instance from its first offer until it left, or was disconnected for `grace_s`.

    ``identity``: the identity of the caller that offered it. ``ended`` is called at the end.
    """

    def __init__(
        self,
        request: relay_pb2.OfferRequest,
        identity: str,
        config: RelayConfig,
        place: RelayPlace,
        ended: Callable[[OfferedInstance], None],
    ) -> None:
        self.id = request.instance_id
        self._identity = identity
        self._key = request.key.encode()
        self._services = tuple(request.services)
        self._last_address = request.last_address
        self._config = config
        self._place = place
        self._ended = ended
        self._entry = discovery_pb2.Instance(
            id=request.instance_id,
            service=request.services[0],
            name=request.name,
            contract_version=request.contract_version,
            health=discovery_pb2.HEALTH_SERVING,
        )
        self._exchange: Exchange | None = None
        self._state: _State = "disconnected"
        metrics.RELAY_INSTANCES.labels(self._state).inc()
        self._changed = asyncio.Event()  # of the state or the connection; a new one each time
        self._calls = 0
        self._waiting_bytes = 0
        self._registration: Registration | None = None
        self._server = MeshServer(
            [Binding(one, Forwarder(self, one), unread=True) for one in self._services],
            credentials=place.credentials,
        )
        self._listed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())

    # ---- offers ---------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the mesh reaches the instance; empty until the instance is listed."""
        return self._entry.address

    def check_same(self, request: relay_pb2.OfferRequest, identity: str) -> None:
        """Raises INSTANCE_EXISTS if the offer is of another instance."""
        same = hmac.compare_digest(self._key, request.key.encode())
        same &= self._identity == identity and self._state in ("connected", "disconnected")
        same &= self._entry.name == request.name and self._services == tuple(request.services)
        if not same:
            raise MeshError(
                errors_pb2.ERROR_REASON_INSTANCE_EXISTS,
                f"this relay already has another instance with the id '{self.id}'; use another id",
                metadata={"instance_id": self.id},
            )

    def attach(self, exchange: Exchange, meta: Mapping[str, str]) -> None:
        """Uses this connection for calls from now on."""
        self._describe(meta)
        before, self._exchange = self._exchange, exchange
        if before is exchange:
            return
        self._enter("connected")
        if before is not None:
            before.cut()  # the instance has given it up, though this side may not have noticed

    async def listed(self) -> None:
        """Waits until the instance is in the registry. Raises MeshError if it could not be
        registered.
        """
        await asyncio.shield(self._listed)

    def renew_soon(self) -> None:
        """Renews the lease now, because the registry is reachable again."""
        if self._registration is not None:
            self._registration.renew_soon()

    def drain(self) -> None:
        """Refuses new calls, because the relay shuts down. The instance ends when its calls have
        ended.
        """
        self._enter("leaving")

    async def close(self) -> None:
        """Ends the instance now."""
        await cancel_and_wait(self._life)

    # ---- calls ----------------------------------------------------------------------

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a call while the context is open. Raises QUEUE_FULL if there are too many
        calls.
        """
        limit = self._config.max_calls
        if self._calls >= limit:
            message = (
                f"the instance '{self.id}' has reached its limit of calls ({limit}); retry later"
            )
            raise queue_full(message, _QUEUE, limit)
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def connection(self, size: int) -> Exchange:
        """The connection for a call with a request of ``size`` bytes.

        Waits while the instance is disconnected or reads slowly, at most until the caller's
        deadline and `grace_s`. Raises DRAINING, QUEUE_FULL if the waiting requests have too many
        bytes, and PEER_UNAVAILABLE if the instance does not connect again.
        """
        exchange = self._exchange
        if exchange is not None and exchange.usable and not exchange.sender.full:
            return exchange
        limit = self._config.max_waiting_bytes
        if self._waiting_bytes + size > limit:
            message = (
                f"the requests that wait for the instance '{self.id}' have reached the limit of "
                f"{limit} bytes; retry later"
            )
            raise queue_full(message, _QUEUE, limit)
        self._waiting_bytes += size
        metrics.RELAY_WAITING.labels().inc()
        try:
            return await self._room()
        finally:
            metrics.RELAY_WAITING.labels().dec()
            self._waiting_bytes -= size

    async def _room(self) -> Exchange:
        while True:
            if self._state == "gone":
                message = (
                    f"{self.address}: the instance '{self.id}' is no longer connected to the relay"
                )
                raise unavailable(message, self.address)
            if self._state == "leaving":
                message = f"the instance '{self.id}' is leaving the relay; call another instance"
                raise MeshError(errors_pb2.ERROR_REASON_DRAINING, message)
            exchange = self._exchange
            if exchange is None or not exchange.usable:
                await self._changed.wait()
                continue
            with suppress(OutboxClosed):  # it broke: nothing of the call was sent
                await exchange.sender.room()
                return exchange

    # ---- its life -------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            if await self._list():
                await self._follow()
        finally:
            self._enter("gone")
            self._ended(self)
            if not self._listed.done():
                self._refuse(draining())
            if self._registration is not None:
                await self._registration.stop()
            await self._server.stop(_STOP_S)
            metrics.RELAY_INSTANCES.labels(self._state).dec()

    async def _list(self) -> bool:
        """Listens and registers; returns whether it could. The error is raised by `listed`."""
        try:
            port = await self._listen()
            self._entry.address = at_port(self._place.host.advertise, port)
            await self._server.set_serving(True)
            if self._place.host.discovery is not None:
                # A relay that died may still be listed with it, for as long as its lease lasts.
                registration = Registration(self._place.host.discovery, self._entry, moved=True)
                self._registration = registration
                await registration.start(_REGISTER_S)
        except MeshError as error:
            self._refuse(error)
            return False
        except (OSError, TimeoutError) as failure:
            message = f"the instance '{self.id}' can't be relayed: {failure}"
            self._refuse(unavailable(message, self.address))
            return False
        self._listed.set_result(None)
        return True

    def _refuse(self, error: MeshError) -> None:
        self._listed.set_exception(error)
        self._listed.exception()  # retrieved here, too: whoever offered it may be gone

    async def _listen(self) -> int:
        """Returns the port. Raises OSError when none of the configured ones is free."""
        ports = ports_to_try(self._config.ports, self._place.host.advertise, self._last_address)
        for port in ports:
            try:
                return await self._server.start(self._place.host.listen, port)
            except OSError:
                if port == ports[-1]:
                    raise
        raise AssertionError("a range of ports is not empty")

    async def _follow(self) -> None:
        """Returns when the instance has left, or has stayed away for too long."""
        while not self._leaving:
            changed, exchange = self._changed, self._exchange
            if exchange is None:
                try:
                    async with asyncio.timeout(self._config.grace_s):
                        await changed.wait()
                except TimeoutError:
                    metrics.RELAY_EXPIRED.labels().inc()
                    _log.warning(
                        "the instance '%s' did not connect again within %g s; "
                        "the relay deregisters it",
                        self.id,
                        self._config.grace_s,
                    )
                    return
                continue
            await first_of(exchange.left(), changed.wait())
            if self._leaving or exchange is not self._exchange or exchange.usable:
                continue
            if exchange.peer_leaving:
                self._enter("leaving")
                continue
            _log.info(
                "the instance '%s' lost its connection to the relay: %s",
                self.id,
                exchange.error().message,
            )
            self._exchange = None
            self._enter("disconnected")
        if self._registration is not None:
            await self._registration.drain()
        if self._exchange is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._exchange.ended()

    @property
    def _leaving(self) -> bool:
        return self._state == "leaving"

    def _enter(self, state: _State) -> None:
        if self._state != "gone":
            metrics.RELAY_INSTANCES.labels(self._state).dec()
            metrics.RELAY_INSTANCES.labels(state).inc()
            self._state = state
        self._changed.set()
        self._changed = asyncio.Event()

    def _describe(self, meta: Mapping[str, str]) -> None:
        """What the registry lists with it."""
        self._entry.meta.clear()
        self._entry.meta.update(meta)
        self._entry.meta[KEEPALIVE_KEY] = str(KEEPALIVE_S)
        self._entry.meta[_RELAY] = self._place.relay_id
        if self._registration is not None:
            self._registration.register_soon()


def draining() -> MeshError:
    """The error for an offer to a relay that shuts down."""
    return MeshError(errors_pb2.ERROR_REASON_DRAINING, "the relay is shutting down")
