"""A mesh that runs elsewhere, whose agents are found by their name in a registry.

consul://[HOST:PORT]/[AGENT]         in Consul kubernetes://[NAMESPACE]/[AGENT]     in a Kubernetes
namespace discovery://HOST:PORT/[AGENT]        by asking a discovery service
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from gymmesh.agent.v1 import agent_pb2
from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh_client.agents import AGENT
from gymmesh_client.collect_stream import AgentPool, StreamLimits
from gymmesh_discovery.config import DiscoveryConfig, KubernetesConfig, split_address
from gymmesh_discovery.service import KIND as DISCOVERY
from gymmesh_mesh.compose import open_here, registry_service
from gymmesh_mesh.config import Defaults
from gymmesh_mesh.meshes.mesh import Mesh
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.serving import DirectoryWatch

SCHEMES: Final = ("consul://", "kubernetes://", "discovery://")
_FOUND_S: Final = 10.0
_HELLO_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Target:
    """The place where agents are found: in the registry of ``discovery``, or by asking the
    discovery service at ``address``. ``agent`` is the name of the agents. It is empty if the target
    that was parsed has none.
    """

    discovery: DiscoveryConfig
    address: str = ""
    agent: str = ""


def read_target(text: str, config: DiscoveryConfig) -> Target:
    """Parse a target, in one of the forms of the module's docstring. Raises ConfigError.

    The configuration sets everything that the target doesn't set.
    """
    scheme, _, rest = text.partition("://")
    place, _, agent = rest.partition("/")
    if scheme == "discovery":
        with suppress(ValueError):
            if "://" not in place and split_address(place)[0] == "http":
                return Target(config, place, agent)
        raise ConfigError("expected discovery://HOST:PORT/AGENT")
    try:
        if scheme == "consul":
            config = replace(config, backend="consul")
            if place:
                encrypted = split_address(config.consul.address)[0] == "https"
                address = f"https://{place}" if encrypted else place
                config = replace(config, consul=replace(config.consul, address=address))
        else:
            config = replace(config, backend="kubernetes")
            if place:
                # What replaces a field of a Struct is not checked by itself.
                fields = {**asdict(config.kubernetes), "namespace": place}
                config = replace(config, kubernetes=msgspec.convert(fields, KubernetesConfig))
    except ValueError as error:
        expected = "HOST:PORT/AGENT" if scheme == "consul" else "NAMESPACE/AGENT"
        raise ConfigError(f"expected {scheme}://{expected}: {error}") from None
    return Target(config, agent=agent)


@asynccontextmanager
async def discovered(
    target: Target,
    defaults: Defaults | None = None,
    *,
    reconnect_s: float = 30.0,
    security: SecurityConfig | None = None,
) -> AsyncIterator[Mesh]:
    """Watch a registry for agents, and use all instances of one agent.

    Tasks that name no environment use the agent's default environment, unless ``defaults`` sets
    another. ``security``: certificates and a token to present to the agents and to a discovery
    service. Raises ConfigError. If no such agent is found within ten seconds, raises
    SERVICE_NOT_FOUND, or the reason why the registry can't be asked, such as PEER_UNAVAILABLE.
    """
    async with AsyncExitStack() as stack:
        directory = PeerDirectory(watched=True, credentials=Credentials(security))
        stack.push_async_callback(directory.close)
        discovery = await watched(target, directory, stack)
        pool = AgentPool(directory, StreamLimits(reconnect_s=reconnect_s))
        stack.push_async_callback(pool.close)
        try:
            found = await directory.pick(AGENT, target.agent, timeout=_FOUND_S)
        except MeshError:
            await _ask(target, discovery)
            raise
        if defaults is None:
            about: agent_pb2.GetAgentResponse = await directory.peer(found).GetAgent(
                agent_pb2.GetAgentRequest(), timeout=_HELLO_S
            )
            defaults = Defaults(environment=about.default_environment)
        yield Mesh(directory, replace(defaults, agent=target.agent), pool)


async def watched(target: Target, directory: PeerDirectory, stack: AsyncExitStack) -> Any:
    """Keep a directory up to date with a registry, until the stack is closed. Returns the discovery
    service that is asked.
    """
    if target.address:
        discovery: Any = directory.plain_peer(target.address, DISCOVERY)
    else:
        registry = registry_service("registry-of-collector", target.discovery)
        discovery = directory.peer(await open_here(registry, directory, stack))
    watch = DirectoryWatch(discovery, directory)
    watch.start()
    stack.push_async_callback(watch.stop)
    return discovery


async def _ask(target: Target, discovery: Any) -> None:
    """Raises MeshError where the registry itself cannot be asked."""
    if target.address:
        request = discovery_pb2.ListInstancesRequest(page_size=1)
        await discovery.ListInstances(request, timeout=_HELLO_S)
    elif target.discovery.backend == "consul":
        from gymmesh_mesh.processes import consul_problem

        problem = await consul_problem(target.discovery.consul)
        if problem is not None:
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, problem) from None
    else:
        from gymmesh_discovery.backends.kubernetes import problem_of

        refusal = await problem_of(target.discovery.kubernetes)
        if refusal is not None:
            raise refusal from None
