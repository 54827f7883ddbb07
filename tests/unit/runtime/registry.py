"""A registry in memory, served over gRPC, for services that register."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.runtime.probe import served


@asynccontextmanager
async def registering() -> AsyncIterator[tuple[str, MemoryRegistry]]:
    """Its address, and what is registered."""
    backend = MemoryRegistry()
    service = DiscoveryService("registry-0", backend)
    await service.open(PeerDirectory())
    async with served(service.servicers()) as address:
        yield address, backend
    await service.close()
