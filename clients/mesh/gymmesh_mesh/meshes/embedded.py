"""All services in this process, directly connected: no sockets between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from gymmesh_client import AgentPeer, InProcessAgent
from gymmesh_client.agents import AGENT
from gymmesh_client.collect_stream import AgentPool
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_mesh.compose import Objects, make_services, open_here, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.meshes.mesh import Mesh
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import DISCOVERY
from gymmesh_runtime.serving import DiscoveryPeer, Registration
from gymmesh_runtime.telemetry.tracing import tracing


@asynccontextmanager
async def embedded(config: MeshConfig, objects: Objects | None = None) -> AsyncIterator[Mesh]:
    """Open every service of a configuration in this process, and close them in reverse order.

    ``objects``: model backends and environments that the caller made. Each replaces what the
    configuration would create for the service of the same name.

    Raises what a service's ``open`` raises: MeshError or ConfigError, with one sentence.
    """
    # Its services have no addresses, so that there is nothing to say in a registry outside.
    config = msgspec.structs.replace(config, discovery=DiscoveryConfig())
    async with AsyncExitStack() as stack:
        if config.mesh.traces:
            await stack.enter_async_context(tracing(config.mesh.traces_endpoint))
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        discovery: DiscoveryPeer | None = None
        agents: dict[str, AgentPeer] = {}
        for service in make_services(specs_of(config, suffix="embedded"), objects):
            instance = await open_here(service, directory, stack)
            if service.kind == AGENT:
                from gymmesh_agent.service import AgentService

                assert isinstance(service, AgentService)  # its kind says so
                agents[service.name] = InProcessAgent(service)
            if service.kind == DISCOVERY:
                discovery = directory.peer(instance)
            elif discovery is not None:
                registration = Registration(discovery, instance)
                stack.push_async_callback(registration.stop)
                await registration.start(timeout=5.0)
        yield Mesh(directory, config.defaults, AgentPool(directory, in_process=agents))
