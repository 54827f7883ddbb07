"""The life of one service process.

Up:   metrics -> directory -> backends (``service.open``) -> server with health
      NOT_SERVING -> register -> SERVING.
Down: on SIGTERM or SIGINT, in reverse: NOT_SERVING -> draining in the registry -> sessions and
      other objects that callers hold end -> running calls end (both bounded) -> deregister ->
      backends close -> channels close.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime.addresses import advertised, at_port
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.security import Credentials, Readers, SecurityConfig, check_exposure
from gymmesh_runtime.serving import (
    DirectoryWatch,
    DiscoveryPeer,
    MetricsEndpoint,
    Registration,
    give_back_spare_memory,
    heartbeat,
)
from gymmesh_runtime.serving.service import Service, ServiceHost
from gymmesh_runtime.telemetry import name_process
from gymmesh_runtime.telemetry.tracing import tracing
from gymmesh_runtime.timers import cancel_and_wait
from gymmesh_runtime.wire import KEEPALIVE_KEY, KEEPALIVE_S, HealthPort, MeshServer

_log = logging.getLogger("gymmesh.serve")

DISCOVERY: Final = "gymmesh.discovery.v1.DiscoveryService"
_REGISTER_S: Final = 20.0
_CLOSE_S: Final = 10.0
# The part of the time to drain that a service's own calls get before it stops them.
_DRAIN_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How services are served. Addresses are host and port; port 0: the system chooses."""

    host: str = "127.0.0.1"
    port: int = 0  # of a service that is served alone
    ports: Mapping[str, int] = field(default_factory=dict)  # by instance id, of several
    movable: Collection[str] = ()  # instance ids: where their port is taken, any other will do
    metrics_port: int | None = 0  # None: no Prometheus endpoint
    metrics_movable: bool = False  # where that port is taken, any other will do
    health_port: int | None = None  # a second, plain port with nothing but health; None: none
    discovery_address: str = ""  # empty: neither registered nor watching
    drain_s: float = 10.0  # for all that is to end at shutdown
    hands_over: bool = False  # another instance follows: what callers hold here may end first
    advertise_host: str = ""  # what others connect to; empty: see addresses
    transport: TransportName = "auto"  # plain: neither offers the mux nor calls over it
    security: SecurityConfig | None = None  # None: plain, and on this machine alone
    traces: bool = False
    traces_endpoint: str = ""  # see tracing.py


@dataclass(frozen=True, slots=True)
class Served:
    """A running process: an instance for each service that others may call, in the services'
    order.
    """

    instances: Sequence[discovery_pb2.Instance]
    directory: PeerDirectory

    @property
    def instance(self) -> discovery_pb2.Instance:
        """The first instance."""
        return self.instances[0]


def _all(service: Service) -> bool:
    return True


def _watching(
    stack: AsyncExitStack, discovery: DiscoveryPeer, directory: PeerDirectory
) -> DirectoryWatch:
    watch = DirectoryWatch(discovery, directory)
    watch.start()
    stack.push_async_callback(watch.stop)
    return watch


@asynccontextmanager
async def serving(
    services: Service | Sequence[Service],
    options: ServeOptions,
    *,
    exposed: Callable[[Service], bool] = _all,
) -> AsyncIterator[Served]:
    """Serves one service, or several in one process, while the context is open.

    The module's docstring has the order of the steps. Several services are opened in their order
    and call one another directly. If one of them is a registry, all use it. If other processes
    register in the same place, the registry is also watched. ``exposed``: which services other
    processes may call; each has its own port and is registered.

    Raises what ``service.open`` raises. Also raises ConfigError if the address for others is
    unknown, if certificates cannot be used, or if they are missing although others can connect;
    OSError if a port is taken; and TimeoutError if the registry is unreachable.
    """
    services = [services] if not isinstance(services, Sequence) else services
    name_process(services)
    check_exposure(options.host, options.security)
    credentials = Credentials(options.security)
    options = replace(options, advertise_host=advertised(options.host, options.advertise_host))
    async with AsyncExitStack() as stack:
        if options.traces:
            named = [one.name for one in services]
            await stack.enter_async_context(tracing(options.traces_endpoint, named))
        metrics_address = _start_metrics(stack, options, credentials)
        health = None
        if options.health_port is not None:
            health = HealthPort()
            stack.push_async_callback(health.stop)
            await health.start(options.host, options.health_port)
        directory = PeerDirectory(
            watched=bool(options.discovery_address) or any(one.shared for one in services),
            transport=options.transport,
            credentials=credentials,
        )
        stack.push_async_callback(directory.close)
        discovery, watch = await _open_all(stack, services, options, directory)
        servers = [_ServiceServer(one, options, credentials) for one in services if exposed(one)]
        for server in servers:
            await server.start(metrics_address, discovery, alone=len(services) == 1)
        _end_in_order(stack, servers, options)
        for server in servers:
            stack.push_async_callback(server.leave)
            await server.enter()
        if health is not None:
            stack.push_async_callback(health.set_serving, False)
            await health.set_serving(True)
        if watch is not None:
            # A registry that came back without its memory hears of us at once.
            watch.on_snapshot = lambda: _renew(servers)
        for beside in (heartbeat(), give_back_spare_memory(), credentials.refresh_for_ever()):
            stack.push_async_callback(cancel_and_wait, asyncio.create_task(beside))
        yield Served([server.instance for server in servers], directory)


async def _open_all(
    stack: AsyncExitStack,
    services: Sequence[Service],
    options: ServeOptions,
    directory: PeerDirectory,
) -> tuple[DiscoveryPeer | None, DirectoryWatch | None]:
    """Opens the services in their order; returns the registry's peer and its watch, if any."""
    discovery = _discovery_peer(directory, options, services)
    watch = None if discovery is None else _watching(stack, discovery, directory)
    for service in services:
        stack.push_async_callback(close_bounded, service)
        service.hosted(ServiceHost(options.host, options.advertise_host, discovery))
        await service.open(directory)
        if len(services) > 1:
            directory.add_direct(instance_of(service), service.servicers())
            if discovery is None and service.kind == DISCOVERY:
                discovery = directory.peer(instance_of(service))
        if discovery is not None and service.shared:
            watch = _watching(stack, discovery, directory)
    return discovery, watch


def _end_in_order(
    stack: AsyncExitStack, servers: Sequence[_ServiceServer], options: ServeOptions
) -> None:
    """Has the stack drain the services, let go of callers, stop the servers, and deregister."""
    # Below the servers' stop: they stay listed, as draining, while calls end.
    for server in servers:
        stack.push_async_callback(server.deregister)
    grace = _Grace(options.drain_s)
    stack.push_async_callback(_stop_all, servers, grace)
    if options.hands_over:
        stack.push_async_callback(_let_go, [server.service for server in servers], grace)
    for server in servers:
        # Streams that last as long as their callers must end in time.
        stack.callback(server.service.drain, options.drain_s * _DRAIN_SHARE)


class _ServiceServer:
    """A service's server, and its entry in the registry."""

    def __init__(self, service: Service, options: ServeOptions, credentials: Credentials) -> None:
        self.service = service
        self._options = options
        self.server = MeshServer(
            (Binding(name, one) for name, one in service.servicers().items()),
            mux=options.transport != "plain",
            extras=service.extras(),
            credentials=credentials,
        )
        self._registration: Registration | None = None
        self.instance = discovery_pb2.Instance()

    async def start(
        self, metrics_address: str, discovery: DiscoveryPeer | None, *, alone: bool
    ) -> None:
        """Listens, on another port where its own is taken and it may move; raises OSError.

        ``discovery``: the registry to enter, which a registry itself does not.
        """
        usual = self._options.port if alone else 0
        port = self._options.ports.get(self.service.instance_id, usual)
        moved = False
        try:
            bound = await self.server.start(self._options.host, port)
        except OSError:
            if not port or self.service.instance_id not in self._options.movable:
                raise
            moved = True
            bound = await self.server.start(self._options.host, 0)
        self.instance = instance_of(self.service)
        self.instance.address = at_port(self._options.advertise_host, bound)
        self.instance.metrics_address = metrics_address
        self._say_meta()
        self.service.served_as(self.instance)
        if discovery is not None and self.service.kind != DISCOVERY:
            self._registration = Registration(discovery, self.instance, moved=moved)
            self.service.follow_meta(self._say_meta)

    def _say_meta(self) -> None:
        """Takes what the service says of itself now, and tells the registry."""
        self.instance.meta.clear()
        self.instance.meta.update(self.service.meta)
        self.instance.meta[KEEPALIVE_KEY] = str(KEEPALIVE_S)
        if self._registration is not None:
            self._registration.register_soon()

    async def enter(self) -> None:
        """Registers, then says SERVING."""
        if self._registration is not None:
            await self._registration.start(_REGISTER_S)
        await self.server.set_serving(True)

    def renew_soon(self) -> None:
        self.service.renew_soon()
        if self._registration is not None:
            self._registration.renew_soon()

    async def leave(self) -> None:
        """NOT_SERVING, and draining in the registry."""
        await self.server.set_serving(False)
        if self._registration is not None:
            await self._registration.drain()

    async def deregister(self) -> None:
        if self._registration is not None:
            await self._registration.stop()


class _Grace:
    """The time that what runs has to end, from when it is first asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: float | None = None

    def left(self) -> float:
        """Seconds."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self._seconds
        return max(0.0, self._ends - now)


async def _let_go(services: Sequence[Service], grace: _Grace) -> None:
    """Until callers hold nothing of the services any more, which still answer them, bounded."""
    seconds = grace.left() * _DRAIN_SHARE

    async def let_one_go(service: Service) -> None:
        try:
            async with asyncio.timeout(seconds):
                await service.let_go()
        except TimeoutError:
            _log.warning("the instance %s stops although it has open sessions", service.instance_id)

    # All at once: a later one would take new sessions until the callers of the first had ended.
    await asyncio.gather(*map(let_one_go, services))


async def _stop_all(servers: Sequence[_ServiceServer], grace: _Grace) -> None:
    grace_s = grace.left()
    await asyncio.gather(*(one.server.stop(grace_s) for one in servers))


def _renew(servers: Sequence[_ServiceServer]) -> None:
    for server in servers:
        server.renew_soon()


async def serve(
    services: Service | Sequence[Service],
    options: ServeOptions,
    on_ready: Callable[[Served], None],
    *,
    exposed: Callable[[Service], bool] = _all,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains. Calls ``on_ready`` once the services are
    SERVING.

    A signal before that aborts the start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)

    async def serve_for_ever() -> None:
        async with serving(services, options, exposed=exposed) as served:
            on_ready(served)
            try:
                await asyncio.Event().wait()
            finally:
                _log.info("%s is draining", served.instance.id)

    running = asyncio.create_task(serve_for_ever())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        running.cancel()
        await asyncio.wait({running})
        for number in signals:
            loop.remove_signal_handler(number)
    if not running.cancelled():
        running.result()  # the start failed: raises what it raised


def _start_metrics(stack: AsyncExitStack, options: ServeOptions, credentials: Credentials) -> str:
    if options.metrics_port is None:
        return ""
    readers = Readers(credentials)
    try:
        endpoint = MetricsEndpoint.start(options.host, options.metrics_port, readers)
    except OSError:
        if not options.metrics_port or not options.metrics_movable:
            raise
        endpoint = MetricsEndpoint.start(options.host, 0, readers)
    stack.callback(endpoint.stop)
    return at_port(options.advertise_host, endpoint.port)


def _discovery_peer(
    directory: PeerDirectory, options: ServeOptions, services: Sequence[Service]
) -> DiscoveryPeer | None:
    """The registry elsewhere; a process that serves a registry has its own."""
    if not options.discovery_address or any(one.kind == DISCOVERY for one in services):
        return None
    # The registry is called too seldom for a mux to be worth its stream.
    peer: Any = directory.plain_peer(options.discovery_address, DISCOVERY)
    return cast(DiscoveryPeer, peer)


def instance_of(service: Service) -> discovery_pb2.Instance:
    """An open service as an instance, for the other services in this process."""
    return discovery_pb2.Instance(
        id=service.instance_id,
        service=service.kind,
        name=service.name,
        address=f"direct:{service.instance_id}",
        contract_version=CONTRACT_VERSION,
        health=discovery_pb2.HEALTH_SERVING,
        meta=service.meta,
    )


async def close_bounded(service: Service) -> None:
    """Closes a service, and gives up after ten seconds."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await service.close()
    except TimeoutError:
        _log.warning("%s did not close within %.0f s", service.instance_id, _CLOSE_S)
