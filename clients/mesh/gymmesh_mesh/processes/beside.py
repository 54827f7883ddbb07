"""What runs beside the services of a mesh, or must be there before them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec

from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.processes.process import ServiceInfo, StartError


def observed(config: MeshConfig, program: str) -> MeshConfig:
    """The configuration with targets for Prometheus. Raises StartError if there can be none."""
    from gymmesh_mesh.processes.prometheus import PrometheusError, find_prometheus, free_address

    try:
        find_prometheus(program)
    except PrometheusError as error:
        raise StartError(str(error)) from None
    if not config.mesh.metrics:
        raise StartError("mesh.metrics is false, so there is nothing for Prometheus to read")
    if config.discovery.http_sd.endswith(":0") or not config.discovery.http_sd:
        # A port that stays when the discovery service is started again.
        found = msgspec.structs.replace(config.discovery, http_sd=free_address())
        config = msgspec.structs.replace(config, discovery=found)
    return config


async def enter_prometheus(stack: AsyncExitStack, config: MeshConfig, program: str) -> ServiceInfo:
    """Starts Prometheus for as long as the stack is open."""
    from gymmesh_mesh.processes.prometheus import PrometheusError, prometheus

    try:
        one = await stack.enter_async_context(prometheus(config.discovery.http_sd, program))
    except PrometheusError as error:
        raise StartError(str(error)) from None
    return ServiceInfo("prometheus", "prometheus", one.address, "", one.pid)


async def enter_consul(stack: AsyncExitStack, config: MeshConfig) -> None:
    """Finds the Consul agent, or starts one for as long as the stack is open."""
    from gymmesh_mesh.processes.consul_agent import ConsulError, consul_agent

    found = config.discovery
    agent = consul_agent(found.consul, start=found.start, binary=found.binary)
    try:
        await stack.enter_async_context(agent)
    except ConsulError as error:
        raise StartError(str(error)) from None


async def check_kubernetes(config: MeshConfig) -> None:
    """Raises StartError where the slices cannot be listed, and ConfigError."""
    from gymmesh_discovery.backends.kubernetes import problem_of

    problem = await problem_of(config.discovery.kubernetes)
    if problem is not None:
        raise StartError(problem.message)
