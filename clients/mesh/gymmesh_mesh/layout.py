"""Which services share a process. Pure.

    mesh      each service has its own process, and scales, fails and is replaced separately
    cell      N equal processes. Each has the agents, the environments, and the models that are
              called at an endpoint. Within a cell, services call each other without a socket.
              Other processes call only the agents. Sandbox services, relays, and models whose
              weights are loaded in the mesh have processes of their own
    embedded  everything in one process

Each layout has a registry, in its own process except in `embedded`. With Consul, each process
registers itself in Consul. A process with a discovery service is added if the configuration sets
its port, or asks for targets for Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gymmesh_mesh.compose import ServiceSpec, registry_spec, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_runtime.serving import usable_processors


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process.

    Attributes:
        name: the name in logs and errors.
        specs: the services of the process, in the order in which they are opened.
        exposed: the instance ids of the services that other processes may call.
        ports: by instance id, the ports that the configuration sets.
    """

    name: str
    specs: Sequence[ServiceSpec]
    exposed: frozenset[str]
    ports: Mapping[str, int] = field(default_factory=dict)


def plan_processes(config: MeshConfig, suffix: str = "0") -> list[ProcessPlan]:
    """The processes of a configuration. If there is a registry, its process is the first.

    `suffix` is the end of the instance ids, because several meshes may share a Consul.
    """
    layout = config.mesh.layout
    if layout == "embedded":
        return [_embedded(config, suffix)]
    registry, *services = specs_of(config, suffix=suffix)
    plans = [_alone(registry, config, suffix)] if _serves_registry(config) else []
    if layout == "cell":
        return plans + _cells(config, services, suffix)
    return plans + [_alone(spec, config, suffix) for spec in services]


def in_consul(config: MeshConfig) -> bool:
    """Whether the services register themselves in Consul."""
    return config.discovery.backend == "consul"


def _serves_registry(config: MeshConfig) -> bool:
    """Whether a discovery service is called from outside."""
    asked = bool(config.mesh.discovery_port or config.discovery.http_sd)
    return asked or not in_consul(config)


def usual_cells(processors: int) -> int:
    """The default number of cells: one fewer than the processors, which leaves one for the
    collector.

    The collector does about a quarter of the work. On two processors a second cell competes with
    the collector. With slow models, a second cell then brings hardly more rollouts per second, and
    each rollout needs an eighth more CPU time, or more if few are in flight.
    """
    return max(1, processors - 1)


def _alone(spec: ServiceSpec, config: MeshConfig, suffix: str) -> ProcessPlan:
    specs = [spec]
    if spec.kind != "discovery":
        specs = [*_inner_registry(config, f"{spec.kind}-{spec.name}-{suffix}"), spec]
    return ProcessPlan(spec.name, specs, frozenset((spec.instance_id,)), _ports([spec], config))


def _inner_registry(config: MeshConfig, suffix: str) -> list[ServiceSpec]:
    """What a process that registers in Consul by itself opens first."""
    if not in_consul(config):
        return []
    # One address for Prometheus, which is the added process'.
    config = replace(config, discovery=replace(config.discovery, http_sd=""))
    return [registry_spec(config, suffix)]


def _embedded(config: MeshConfig, suffix: str) -> ProcessPlan:
    specs = specs_of(config, suffix=suffix)
    called = ["agent", "sandbox", "relay", *(["discovery"] if _serves_registry(config) else [])]
    exposed = [one for one in specs if one.kind in called]
    ids = frozenset(one.instance_id for one in exposed)
    return ProcessPlan("mesh", specs, ids, _ports(exposed, config))


def _cells(config: MeshConfig, services: list[ServiceSpec], suffix: str) -> list[ProcessPlan]:
    # Serving these takes a machine's memory, so that each cell cannot have its own.
    apart = {("model", name) for name, model in config.models.items() if model.computes_here}
    apart |= {("sandbox", name) for name in config.sandboxes}
    apart |= {("relay", name) for name in config.relays}
    plans = [_alone(one, config, suffix) for one in services if (one.kind, one.name) in apart]
    for number in range(config.mesh.cells or usual_cells(usable_processors())):
        cell = f"cell{number}" if suffix == "0" else f"cell{number}-{suffix}"
        _, *specs = specs_of(config, suffix=cell)
        inside = [one for one in specs if (one.kind, one.name) not in apart]
        inside = [*_inner_registry(config, cell), *inside]
        agents = [one for one in inside if one.kind == "agent"]
        ids = frozenset(one.instance_id for one in agents)
        plans.append(ProcessPlan(f"cell{number}", inside, ids, _ports(agents, config, number)))
    return plans


def _ports(specs: Iterable[ServiceSpec], config: MeshConfig, number: int = 0) -> dict[str, int]:
    """The configured ports; cell k has the agent's, plus k."""
    ports = {}
    for spec in specs:
        if spec.kind == "discovery":
            ports[spec.instance_id] = config.mesh.discovery_port
        elif spec.kind == "agent" and spec.name == config.defaults.agent and config.mesh.agent_port:
            ports[spec.instance_id] = config.mesh.agent_port + number
        elif spec.kind == "relay":
            ports[spec.instance_id] = config.relays[spec.name].port
    return ports
