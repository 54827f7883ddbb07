"""The environments that judge stored rollouts, without agents and without a policy."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh_mesh.compose import (
    Objects,
    make_service,
    models_called,
    open_here,
    sandboxes_for,
    specs_of,
)
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.meshes import SCHEMES, found_at, read_target, watched
from gymmesh_mesh.uses import one_use
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
_HELLO_S: Final = 5.0


def judged_by(config: MeshConfig, names: Collection[str], use: str) -> MeshConfig:
    """The configuration with another verifier for these environments: a class or a plain function
    in any file, written as `use` of an environment, or a file that has only one. Raises
    ConfigError.
    """
    judges = dict.fromkeys(names, EnvironmentConfig(use=one_use(use)))
    return replace(config, environments={**config.environments, **judges})


@asynccontextmanager
async def embedded_environments(
    config: MeshConfig,
    names: Collection[str],
    objects: Objects | None = None,
    *,
    known: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[PeerDirectory]:
    """Open these environments of a configuration in this process, with the models and the sandbox
    services that they call.

    ``objects`` as for `embedded`. ``known``: what the runs of the environments used. If the
    configuration lacks an environment, the error suggests this value.

    Raises ConfigError if the configuration lacks an environment, and what a service's ``open``
    raises.
    """
    for name in sorted(names):
        if name not in config.environments:
            raise ConfigError(
                f"there are rollouts of environment {name!r}, which is not in the configuration; "
                f"{_how_to_have(name, names, config, known)}",
                path="environments",
            )
    specs = specs_of(config, suffix="embedded")
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        environments = [
            make_service(spec, objects)
            for spec in specs
            if spec.kind == "environment" and spec.name in names
        ]
        called = {model for service in environments for model in models_called(service)}
        models = [
            make_service(spec) for spec in specs if spec.kind == "model" and spec.name in called
        ]
        for service in (*models, *sandboxes_for(environments, config), *environments):
            await open_here(service, directory, stack)
        yield directory


def _how_to_have(
    name: str, names: Collection[str], config: MeshConfig, known: Mapping[str, str]
) -> str:
    use = known.get(name)
    if not use:
        return (
            f"{nearest(name, config.environments)}; pass --config, or --set "
            f"environments.{name}.use=NAME"
        )
    option = f"--verifier {shlex.quote(use)}"
    if len(names) > 1:  # which one verifier would judge all
        option = f"--set {shlex.quote(f'environments.{name}.use={use}')}"
    return (
        f"the run of these rollouts used the verifier {use}: pass {option}, or the run's --config"
    )


@asynccontextmanager
async def remote_environments(
    addresses: Sequence[str],
    config: MeshConfig | None = None,
    *,
    security: SecurityConfig | None = None,
) -> AsyncIterator[PeerDirectory]:
    """Connect to resource services. Each service reports which environment it is.

    An address is ``host:port``. Or it is ``discovery://``, ``consul://`` or ``kubernetes://``, for
    all environments in a registry (see ``discovered``). Raises MeshError if a service does not
    answer, and ConfigError if the certificates cannot be used.
    """
    async with AsyncExitStack() as stack:
        registries = [one for one in addresses if one.startswith(SCHEMES)]
        directory = PeerDirectory(watched=bool(registries), credentials=Credentials(security))
        stack.push_async_callback(directory.close)
        for one in registries:
            target = read_target(one, (config or MeshConfig()).discovery)
            await watched(target, directory, stack)
        for address in addresses:
            if address not in registries:
                unknown = discovery_pb2.Instance(id=address, service=RESOURCE, address=address)
                about = await directory.peer(unknown).GetEnvironment(
                    resource_pb2.GetEnvironmentRequest(), timeout=_HELLO_S
                )
                directory.upsert(found_at(address, RESOURCE, about))
        yield directory
