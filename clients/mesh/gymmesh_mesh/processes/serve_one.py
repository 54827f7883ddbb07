"""One service of a configuration in this process, as in a container.

`up` starts every service of a configuration on one machine. If a different system starts and
restarts processes (Kubernetes, Slurm, systemd), each process runs one service, finds the others
through a registry, and ends on SIGTERM after draining. An environment, a model or a sandbox service
can also be served alone, without a registry; an environment then has the models and sandbox
services that it uses in its process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_mesh.compose import (
    ServiceKind,
    ServiceSpec,
    make_service,
    make_services,
    models_called,
    registry_spec,
    sandboxes_for,
    serve_options,
    specs_of,
)
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.layout import in_consul
from gymmesh_mesh.processes.process import StartError
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.serve import serve
from gymmesh_runtime.serving.service import Service

KINDS: tuple[ServiceKind, ...] = get_args(ServiceKind)


@dataclass(frozen=True, slots=True)
class ServingPlace:
    """Where one service is served.

    Attributes:
        host: the address to listen on. Empty: `mesh.host`.
        advertise_host: the address that others connect to. Empty: `mesh.advertise_host`.
        port: the port of the service. 0: the system chooses.
        metrics_port: the port of `/metrics`. None: no metrics, as with `mesh.metrics: false`.
        health_port: a plain port that serves only health. None: no such port.
        discovery_address: the address of the discovery service. Empty if services register
            themselves.
        instance: the end of the instance id, which is unique in the mesh; often the host's name.
    """

    host: str = ""
    advertise_host: str = ""
    port: int = 0
    metrics_port: int | None = 0
    health_port: int | None = None
    discovery_address: str = ""
    instance: str = "0"


async def serve_one(
    config: MeshConfig,
    kind: ServiceKind,
    name: str,
    place: ServingPlace,
    on_ready: Callable[[discovery_pb2.Instance], None],
) -> None:
    """Serve one service until SIGTERM or SIGINT, then drain for at most `mesh.drain_s` seconds.

    ``on_ready`` is called with the instance once the service is SERVING. Raises ConfigError if the
    service is not in the configuration, if the place does not fit the service, or if others could
    reach the place without TLS. Raises StartError if a port is taken or the registry cannot be
    reached, and MeshError as the service itself does.
    """
    specs = _specs(config, kind, name, place)
    spec = specs[-1]
    options = replace(
        serve_options(config, place.host, place.advertise_host),
        ports={spec.instance_id: place.port or _own_port(config, kind, name)},
        metrics_port=place.metrics_port if config.mesh.metrics else None,
        health_port=place.health_port,
        discovery_address=place.discovery_address,
        hands_over=True,
    )
    if _is_alone(config, kind, place):
        services = _with_peers(make_service(spec), config, place)
    else:
        services = make_services(specs)
    try:
        await serve(
            services,
            options,
            lambda served: on_ready(served.instance),
            exposed=lambda one: one.instance_id == spec.instance_id,
        )
    except (OSError, TimeoutError) as error:
        raise StartError(f"the {kind} service '{name}' could not start: {error}") from error


def _specs(
    config: MeshConfig, kind: ServiceKind, name: str, place: ServingPlace
) -> Sequence[ServiceSpec]:
    """The service, last, and the registry that it registers in by itself, if it does."""
    found = [one for one in specs_of(config, suffix=place.instance) if one.kind == kind]
    spec = next((one for one in found if one.name == name), None)
    if spec is None:
        there = ", ".join(f"'{one.name}'" for one in found) or "none"
        raise ConfigError(
            f"the configuration has no {kind} '{name}'. Services of this kind: {there}"
        )
    if kind == "discovery":
        if place.discovery_address:
            raise ConfigError("a discovery service does not register itself; remove --discovery")
        return [spec]
    if in_consul(config):
        if place.discovery_address:
            raise ConfigError(
                "services register themselves in Consul (discovery.backend); remove --discovery"
            )
        return [registry_spec(config, f"{kind}-{name}-{place.instance}"), spec]
    if not place.discovery_address and not _is_alone(config, kind, place):
        raise ConfigError(
            "the registry is a discovery service (discovery.backend: "
            f"{config.discovery.backend}). Pass its address with --discovery HOST:PORT"
        )
    return [spec]


def _own_port(config: MeshConfig, kind: ServiceKind, name: str) -> int:
    """The port that the configuration itself names for a service; 0: the system chooses."""
    return config.relays[name].port if kind == "relay" else 0


def _is_alone(config: MeshConfig, kind: ServiceKind, place: ServingPlace) -> bool:
    """Whether a service is served without a registry: one that needs no other to be found."""
    registered = place.discovery_address or in_consul(config)
    return kind in ("environment", "model", "sandbox") and not registered


def _with_peers(service: Service, config: MeshConfig, place: ServingPlace) -> list[Service]:
    """A service that is served alone, last, and the models and sandbox services that it uses."""
    called = models_called(service)
    models = [
        make_service(spec)
        for spec in specs_of(config, suffix=place.instance)
        if spec.kind == "model" and spec.name in called
    ]
    return [*models, *sandboxes_for([service], config), service]
