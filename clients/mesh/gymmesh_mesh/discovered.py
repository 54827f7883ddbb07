"""A mesh that runs elsewhere, whose agents are found in Consul by their name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1.discovery_pb2 import Instance
from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.collect_stream import AgentPool, StreamLimits
from gymmesh_discovery.config import ConsulConfig, DiscoveryConfig, split_address
from gymmesh_mesh.compose import registry_service
from gymmesh_mesh.config import Defaults
from gymmesh_mesh.consul_agent import consul_problem
from gymmesh_mesh.mesh import Mesh
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.registration import DirectoryWatch
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.serve import close_bounded, instance_of

AGENT: Final = "gymmesh.agent.v1.AgentService"
SCHEME: Final = "consul://"
_FOUND_S: Final = 10.0
_HELLO_S: Final = 5.0


def read_target(text: str, config: ConsulConfig) -> tuple[ConsulConfig, str]:
    """The Consul and the agent's name of `consul://[HOST:PORT]/[NAME]`; raises ConfigError.

    What the target leaves out, and all else, is the configuration's; the name may be empty.
    """
    place, _, name = text.removeprefix(SCHEME).partition("/")
    if not place:
        return config, name
    scheme, _, _ = split_address(config.address)
    address = f"https://{place}" if scheme == "https" else place
    try:
        return msgspec.structs.replace(config, address=address), name
    except ValueError as error:
        raise ConfigError(f"{SCHEME}HOST:PORT/AGENT is expected: {error}") from None


@asynccontextmanager
async def discovered(
    consul: ConsulConfig,
    agent: str,
    defaults: Defaults | None = None,
    *,
    reconnect_s: float = 30.0,
    security: SecurityConfig | None = None,
) -> AsyncIterator[Mesh]:
    """Watches Consul for agents, and uses all instances of the one called ``agent``.

    Its default environment is that of tasks that name none, unless ``defaults`` says so.
    ``security``: the certificates and the token to show the agents. Raises ConfigError, and when
    there is no such agent within ten seconds SERVICE_NOT_FOUND, or PEER_UNAVAILABLE where Consul
    does not answer.
    """
    async with AsyncExitStack() as stack:
        directory = PeerDirectory(watched=True, credentials=Credentials(security))
        stack.push_async_callback(directory.close)
        config = DiscoveryConfig(backend="consul", consul=consul)
        registry = registry_service("registry-of-collector", config)
        stack.push_async_callback(close_bounded, registry)
        await registry.open(directory)
        instance = instance_of(registry)
        directory.add_direct(instance, registry.servicers())
        watch = DirectoryWatch(directory.peer(instance), directory)
        watch.start()
        stack.push_async_callback(watch.stop)
        pool = AgentPool(directory, StreamLimits(reconnect_s=reconnect_s))
        stack.push_async_callback(pool.close)
        found = await _find(directory, agent, consul)
        if defaults is None:
            about: agent_pb2.GetAgentResponse = await directory.peer(found).GetAgent(
                agent_pb2.GetAgentRequest(), timeout=_HELLO_S
            )
            defaults = Defaults(environment=about.default_environment)
        yield Mesh(directory, msgspec.structs.replace(defaults, agent=agent), pool)


async def _find(directory: PeerDirectory, agent: str, consul: ConsulConfig) -> Instance:
    try:
        return await directory.pick(AGENT, agent, timeout=_FOUND_S)
    except MeshError:
        problem = await consul_problem(consul)
        if problem is None:
            raise
        raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, problem) from None
