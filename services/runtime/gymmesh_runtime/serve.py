"""The life of one service process.

Up:   metrics -> directory -> backends (``service.open``) -> server with health
      NOT_SERVING -> register -> SERVING.
Down: in reverse, on SIGTERM or SIGINT: NOT_SERVING -> draining in the registry ->
      running calls end, bounded -> deregister -> backends close -> channels.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.exposition import MetricsEndpoint, heartbeat
from gymmesh_runtime.peers import PeerDirectory, Transport
from gymmesh_runtime.registration import DirectoryWatch, DiscoveryPeer, Registration
from gymmesh_runtime.service import Service
from gymmesh_runtime.wire.server import MeshServer

_log = logging.getLogger("gymmesh.serve")

DISCOVERY: Final = "gymmesh.discovery.v1.DiscoveryService"
_REGISTER_S: Final = 20.0
_CLOSE_S: Final = 10.0
# The part of the time to drain that a service's own calls get before it stops them.
_DRAIN_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a service is served. Addresses are host and port; port 0: the system chooses."""

    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int | None = 0  # None: no Prometheus endpoint
    discovery_address: str = ""  # empty: neither registered nor watching
    drain_s: float = 10.0
    advertise_host: str = ""  # what peers connect to; empty: `host`
    transport: Transport = "auto"  # plain: neither offers the mux nor calls over it


@dataclass(frozen=True, slots=True)
class Served:
    """Where a running service is."""

    instance: discovery_pb2.Instance
    directory: PeerDirectory


@asynccontextmanager
async def serving(service: Service, options: ServeOptions) -> AsyncIterator[Served]:
    """Serves while the context is open; see the module for the order of things.

    Raises what ``service.open`` raises, OSError when a port is taken, and
    TimeoutError when the registry can't be reached.
    """
    async with AsyncExitStack() as stack:
        metrics_address = _start_metrics(stack, options)
        directory = PeerDirectory(
            watched=bool(options.discovery_address), transport=options.transport
        )
        stack.push_async_callback(directory.close)
        discovery = _discovery_peer(directory, options, service)
        watch = None if discovery is None else DirectoryWatch(discovery, directory)
        if watch is not None:
            watch.start()
            stack.push_async_callback(watch.stop)

        stack.push_async_callback(close_bounded, service)
        await service.open(directory)

        server = MeshServer(
            (Binding(name, one) for name, one in service.servicers().items()),
            mux=options.transport != "plain",
        )
        port = await server.start(options.host, options.port)
        instance = _instance(service, options, port, metrics_address)
        registration = None if discovery is None else Registration(discovery, instance)
        # Below the server's stop: it stays listed, as draining, while calls end.
        if registration is not None:
            stack.push_async_callback(registration.stop)
        stack.push_async_callback(server.stop, options.drain_s)
        drain = getattr(service, "drain", None)
        if drain is not None:
            # Streams that last as long as their callers must be told, and end in time.
            stack.callback(drain, options.drain_s * _DRAIN_SHARE)
        if registration is not None and watch is not None:
            await registration.start(_REGISTER_S)
            # A registry that came back without its memory hears of us at once.
            watch.on_snapshot = registration.renew_soon
            stack.push_async_callback(registration.drain)
        stack.push_async_callback(server.set_serving, False)
        await server.set_serving(True)

        beat = asyncio.create_task(heartbeat())
        stack.push_async_callback(_cancel, beat)
        yield Served(instance, directory)


async def serve(
    service: Service, options: ServeOptions, on_ready: Callable[[Served], None]
) -> None:
    """Serves until SIGTERM or SIGINT, then drains. ``on_ready`` is called once SERVING.

    A signal that comes earlier breaks the start off.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    running = asyncio.create_task(_serve_for_ever(service, options, on_ready))
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


async def _serve_for_ever(
    service: Service, options: ServeOptions, on_ready: Callable[[Served], None]
) -> None:
    async with serving(service, options) as served:
        on_ready(served)
        try:
            await asyncio.Event().wait()
        finally:
            _log.info("%s is draining", served.instance.id)


def _start_metrics(stack: AsyncExitStack, options: ServeOptions) -> str:
    if options.metrics_port is None:
        return ""
    endpoint = MetricsEndpoint.start(options.host, options.metrics_port)
    stack.callback(endpoint.stop)
    return endpoint.address


def _discovery_peer(
    directory: PeerDirectory, options: ServeOptions, service: Service
) -> DiscoveryPeer | None:
    if not options.discovery_address or service.kind == DISCOVERY:
        return None
    # The registry is called too seldom for a mux to be worth its stream.
    peer: Any = directory.plain_peer(options.discovery_address, DISCOVERY)
    return cast(DiscoveryPeer, peer)


def _instance(
    service: Service, options: ServeOptions, port: int, metrics_address: str
) -> discovery_pb2.Instance:
    return discovery_pb2.Instance(
        id=service.instance_id,
        service=service.kind,
        name=service.name,
        address=f"{options.advertise_host or options.host}:{port}",
        contract_version=CONTRACT_VERSION,
        health=discovery_pb2.HEALTH_SERVING,
        metrics_address=metrics_address,
        meta=getattr(service, "meta", {}),
    )


async def close_bounded(service: Service) -> None:
    """Closes a service, giving up after ten seconds."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await service.close()
    except TimeoutError:
        _log.warning("%s did not close within %.0f s", service.instance_id, _CLOSE_S)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
