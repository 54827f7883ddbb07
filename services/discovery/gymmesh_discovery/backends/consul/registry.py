"""The registry in Consul: leases are its health checks, and watches its blocking queries.

Every process of a mesh may have one of these, over the Consul agent of its machine, and a
discovery service may, too. Leases belong to the process that gave them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.consul.agent import ConsulAgent
from gymmesh_discovery.backends.consul.leases import ConsulLeases
from gymmesh_discovery.backends.consul.view import ConsulView
from gymmesh_discovery.backends.consul.watch import ConsulWatch
from gymmesh_discovery.backends.watchers import Watcher, Watchers
from gymmesh_discovery.config import ConsulConfig
from gymmesh_runtime import metrics
from gymmesh_runtime.waits import cancel_and_wait

Instance = discovery_pb2.Instance

_SWEEP_S: Final = 1.0
# Services learn within a second that Consul is back, and register anew if it forgot them.
_GRACE_S: Final = 5.0


class ConsulRegistry:
    """A RegistryBackend over one Consul agent. ``clock`` gives monotonic seconds."""

    #: Whether other processes register in the same place.
    shared: Final = True

    def __init__(self, config: ConsulConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = ConsulView(_GRACE_S)
        self._watchers = Watchers()
        self._agent = ConsulAgent(config)
        self._leases = ConsulLeases(config, self._agent, self._view, clock)
        self._watch = ConsulWatch(config, self._agent, self._view, self._watchers, clock)
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts watching, and waits a moment for the first view. Raises ConfigError."""
        self._agent.open()
        self._sweeper = asyncio.create_task(self._sweep_forever())
        await self._watch.open()

    async def close(self) -> None:
        """Stops watching."""
        await cancel_and_wait(self._sweeper)
        self._sweeper = None
        await self._watch.close()
        await self._agent.close()

    async def register(self, instance: Instance, lease_s: int, held_lease: str) -> tuple[str, int]:
        """Registers an instance with the Consul agent. Raises INSTANCE_EXISTS, PEER_UNAVAILABLE."""
        return await self._leases.register(instance, lease_s, held_lease)

    async def renew(self, lease_id: str, health: discovery_pb2.Health.ValueType) -> int:
        """Asks Consul whether it knows the instance, and reports. Raises LEASE_NOT_FOUND."""
        return await self._leases.renew(lease_id, health)

    async def deregister(self, lease_id: str) -> None:
        """Gives a lease back; one that another process took over is left alone."""
        await self._leases.deregister(lease_id)

    def snapshot(self, service: str, name: str) -> tuple[int, list[Instance]]:
        """The version and the matching instances."""
        self._watch.expire()
        return self._view.version, self._view.instances(service, name)

    def subscribe(self) -> Watcher:
        """Every change from this call on."""
        return self._watchers.subscribe()

    def age_s(self) -> float:
        """For how long a part of the view has not been confirmed, in seconds; 0 when it is."""
        return self._watch.age_s()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            metrics.REGISTRY_VIEW_AGE.set(self.age_s())
            self._watch.expire()
            await self._leases.expire()
