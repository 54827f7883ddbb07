"""Makes services from a configuration. This is the only module that knows every room.

A room is imported when one of its services is made, so that a process with one service loads no
other room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_mesh.config import MeshConfig
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, close_bounded, instance_of
from gymmesh_runtime.serving.service import Service
from gymmesh_sandbox_access import SandboxUser

if TYPE_CHECKING:
    from gymmesh_discovery.backends.base import RegistryBackend
    from gymmesh_discovery.service import DiscoveryService
    from gymmesh_model.backends.base import Backend
    from gymmesh_resource import Environment

ServiceKind = Literal["discovery", "model", "sandbox", "environment", "agent", "relay"]
_SECTIONS: Final[Mapping[ServiceKind, str]] = {
    "discovery": "discovery",
    "model": "models",
    "sandbox": "sandboxes",
    "environment": "environments",
    "agent": "agents",
    "relay": "relays",
}
_T = TypeVar("_T")


class ServiceSpec(msgspec.Struct, frozen=True, rename={"config_json": "config"}):
    """One service to run: its kind, its name in the mesh, and its configuration as JSON.

    sandboxes: for an environment or an agent, the sandbox services of the mesh. Other sandbox
    services that it uses run in its own process.
    """

    kind: ServiceKind
    name: str
    instance_id: str
    config_json: bytes = b"{}"
    sandboxes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that a program created itself, by service name. They replace what the configuration
    would create.
    """

    backends: Mapping[str, Backend] = field(default_factory=dict)
    environments: Mapping[str, Environment[Any]] = field(default_factory=dict)


def specs_of(config: MeshConfig, *, suffix: str = "0") -> list[ServiceSpec]:
    """The services of a configuration, in the order in which they are opened.

    ``suffix`` is the end of the instance ids, which must be unique in a registry.
    """
    usual = config.defaults.environment
    agents = {
        name: replace(one, default_environment=one.default_environment or usual)
        for name, one in config.agents.items()
    }
    groups: dict[ServiceKind, Mapping[str, msgspec.Struct]] = {
        "model": config.models,
        "sandbox": config.sandboxes,
        "environment": config.environments,
        "agent": agents,
        "relay": config.relays,
    }
    return [
        registry_spec(config, suffix),
        *(
            ServiceSpec(
                kind,
                name,
                f"{kind}-{name}-{suffix}",
                _encode(kind, name, one),
                tuple(config.sandboxes) if kind in ("environment", "agent") else (),
            )
            for kind, services in groups.items()
            for name, one in services.items()
        ),
    ]


def registry_spec(config: MeshConfig, suffix: str) -> ServiceSpec:
    """The registry of a configuration."""
    found = config.discovery
    encrypted = config.security is not None and config.security.tls is not None
    if encrypted and found.consul.check == "auto":
        # Consul's own checks show no certificate.
        found = replace(found, consul=replace(found.consul, check="ttl"))
    encoded = _encode("discovery", "registry", found)
    return ServiceSpec("discovery", "registry", f"registry-{suffix}", encoded)


def registry_service(instance_id: str, config: DiscoveryConfig) -> DiscoveryService:
    """A registry, not yet open. Raises ConfigError."""
    from gymmesh_discovery.edges import edges_of
    from gymmesh_discovery.service import DiscoveryService

    backend: RegistryBackend | None = None
    if config.backend == "consul":
        from gymmesh_discovery.backends.consul import ConsulRegistry

        backend = ConsulRegistry(config.consul)
    elif config.backend == "kubernetes":
        from gymmesh_discovery.backends.kubernetes import KubernetesRegistry

        backend = KubernetesRegistry(config.kubernetes)
    return DiscoveryService(instance_id, backend, edges=edges_of(config))


def make_service(spec: ServiceSpec, objects: Objects | None = None) -> Service:
    """Make the service without opening it. Raises what its room raises for a bad configuration."""
    objects = objects or Objects()
    if spec.kind == "discovery":
        return registry_service(spec.instance_id, _decode(spec, DiscoveryConfig))
    if spec.kind == "model":
        from gymmesh_model.config import ModelConfig
        from gymmesh_model.service import ModelService

        config = _decode(spec, ModelConfig)
        backend = objects.backends.get(spec.name)
        return ModelService(config, spec.name, spec.instance_id, backend=backend)
    if spec.kind == "sandbox":
        from gymmesh_sandbox.config import SandboxConfig
        from gymmesh_sandbox.service import SandboxService

        return SandboxService(_decode(spec, SandboxConfig), spec.name, spec.instance_id)
    if spec.kind == "environment":
        from gymmesh_resource.config import EnvironmentConfig
        from gymmesh_resource.service import ResourceService

        served = objects.environments.get(spec.name)
        return ResourceService(
            _decode(spec, EnvironmentConfig), spec.name, spec.instance_id, environment=served
        )
    if spec.kind == "relay":
        from gymmesh_relay.config import RelayConfig
        from gymmesh_relay.service import RelayService

        return RelayService(_decode(spec, RelayConfig), spec.name, spec.instance_id)
    from gymmesh_agent.service import AgentService

    return AgentService(_decode(spec, AgentConfig), spec.name, spec.instance_id)


def make_services(specs: Iterable[ServiceSpec], objects: Objects | None = None) -> list[Service]:
    """Make services without opening them, in the order in which they must be opened. Before an
    environment or an agent come the sandbox services that it uses and that no other process serves.
    Raises as `make_service`.
    """
    made: list[Service] = []
    beside: set[str] = set()
    for spec in specs:
        service = make_service(spec, objects)
        own = {*own_sandboxes(service)} - {*spec.sandboxes} - beside
        beside |= own
        made += [make_service(own_sandbox_spec(name, service.instance_id)) for name in sorted(own)]
        made.append(service)
    return made


def sandboxes_for(environments: Iterable[Service], config: MeshConfig | None) -> list[Service]:
    """The sandbox services that environments use, for a process without other services: those of
    the configuration, and new ones for missing names.
    """
    specs = () if config is None else specs_of(config, suffix="embedded")
    known = {spec.name: spec for spec in specs if spec.kind == "sandbox"}
    users = {name: service for service in environments for name in sandboxes_used(service)}
    found = {name: known[name] for name in users if name in known}
    for name, service in users.items():
        if name not in known and name in own_sandboxes(service):
            found[name] = own_sandbox_spec(name, service.instance_id)
    return [make_service(spec) for spec in found.values()]


def own_sandbox_spec(name: str, owner: str) -> ServiceSpec:
    """A sandbox service that is not in the configuration, for one owner in the owner's process.

    The number of its places does not shrink on a busy machine: the owner that holds the places is
    the same that waits for more.
    """
    return ServiceSpec("sandbox", name, f"sandbox-{name}-of-{owner}", b'{"adapts": false}')


def sandboxes_used(service: Service) -> Collection[str]:
    """The names of the sandbox services that an environment or an agent uses. Empty for other
    services. Raises ConfigError.
    """
    return service.sandboxes.names if isinstance(service, SandboxUser) else ()


def own_sandboxes(service: Service) -> Collection[str]:
    """The names of sandbox services that the configuration did not choose. If no process serves one
    of them, the environment or agent gets its own.
    """
    return service.sandboxes.own if isinstance(service, SandboxUser) else ()


def models_called(service: Service) -> Collection[str]:
    """The names of the models that an environment's service calls. Empty for other services."""
    from gymmesh_resource.service import ResourceService

    return service.model_names if isinstance(service, ResourceService) else ()


def serve_options(config: MeshConfig, host: str, advertise_host: str) -> ServeOptions:
    """How to serve the services of a configuration. Empty addresses stand for those of the
    configuration.
    """
    settings = config.mesh
    return ServeOptions(
        host=host or settings.host,
        advertise_host=advertise_host or settings.advertise_host,
        metrics_port=0 if settings.metrics else None,
        drain_s=settings.drain_s,
        transport=settings.transport,
        security=config.security,
        traces=settings.traces,
        traces_endpoint=settings.traces_endpoint,
    )


async def open_here(
    service: Service, directory: PeerDirectory, stack: AsyncExitStack
) -> discovery_pb2.Instance:
    """Open a service for callers in this process, which find it in the directory, until the stack
    is closed. Raises what the service's `open` raises.
    """
    stack.push_async_callback(close_bounded, service)
    await service.open(directory)
    instance = instance_of(service)
    directory.add_direct(instance, service.servicers())
    return instance


def _encode(kind: ServiceKind, name: str, config: msgspec.Struct) -> bytes:
    # The codec's writer rather than msgspec's, which turns .nan and .inf into null.
    try:
        return dumps(msgspec.to_builtins(config, enc_hook=_plain))
    except CodecError as error:
        raise ConfigError(str(error.within(name).within(_SECTIONS[kind]))) from None


def _decode(spec: ServiceSpec, schema: type[_T]) -> _T:
    return msgspec.convert(loads(spec.config_json), schema, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return str(value)
    raise NotImplementedError(type(value).__name__)


def _typed(hint: type, value: Any) -> Any:
    if hint is Secret:
        return Secret(value)
    raise NotImplementedError(hint.__name__)
