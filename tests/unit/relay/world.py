"""A registry and a relay in one process, a probe that dials the relay through a proxy, and callers.

The proxy is the link that tests cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gymmesh_discovery.service import DiscoveryService
from gymmesh_relay.config import RelayConfig
from gymmesh_relay.service import RelayService
from gymmesh_runtime.peers import PeerDirectory, TransportName
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving import RelayDialer, RelayedInstance
from tests.support.proxy import Proxy
from tests.unit.runtime.probe import MODEL, Probe

START_S = 60.0
CALL_S = 60.0


@dataclass
class World:
    """A relay and what reaches it."""

    relay: RelayService
    directory: PeerDirectory  # of the relay's process
    link: Proxy
    callers: PeerDirectory
    stack: AsyncExitStack

    async def dial(
        self,
        servicer: object,
        instance_id: str = "probe-0",
        *,
        name: str = "policy",
        security: SecurityConfig | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> RelayDialer:
        """Offers a servicer over the link, until the world ends."""
        instance = RelayedInstance(name, instance_id, {MODEL: servicer}, lambda: meta or {})
        dialer = RelayDialer(self.link.address, instance, Credentials(security))
        self.stack.push_async_callback(dialer.stop, 0.0)
        await dialer.start(START_S)
        return dialer

    async def peer(self, instance_id: str = "probe-0") -> Any:
        """The instance as callers elsewhere find it."""
        for found in self.directory.instances():
            self.callers.upsert(found)
        found = next(one for one in self.callers.instances() if one.id == instance_id)
        return self.callers.peer(found)


@asynccontextmanager
async def world(
    config: RelayConfig | None = None,
    *,
    transport: TransportName = "auto",
    security: SecurityConfig | None = None,
    shown: SecurityConfig | None = None,
) -> AsyncIterator[World]:
    """``security``: of the mesh; ``shown``: of callers."""
    relay = RelayService(config or RelayConfig(), "door", "relay-door-0")
    registry = DiscoveryService("registry-0")
    registry.shared = True  # so that the directory of this process follows it
    options = ServeOptions(metrics_port=None, drain_s=1.0, security=security)
    async with (
        serving([registry, relay], options) as served,
        Proxy(int(served.instances[1].address.rpartition(":")[2])) as link,
        AsyncExitStack() as stack,
    ):
        callers = PeerDirectory(transport=transport, credentials=Credentials(shown))
        stack.push_async_callback(callers.close)
        yield World(relay, served.directory, link, callers, stack)


__all__ = ["CALL_S", "MODEL", "Probe", "World", "world"]
