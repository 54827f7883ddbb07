"""Opens the mesh that a trainer points at: an environment in this process, or a mesh elsewhere."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_client import UserError
from gymmesh_client.side_data import fetch_side_data
from gymmesh_mesh import (
    SCHEMES,
    DialedOut,
    Mesh,
    MeshConfig,
    Objects,
    dial_out,
    discovered,
    embedded,
    read_target,
)
from gymmesh_mesh import remote as remote_mesh
from gymmesh_mesh.authoring.task_checks import TaskChecks
from gymmesh_mesh.model_checks import set_weights
from gymmesh_mesh.verifying import RESOURCE, embedded_environments, remote_environments
from gymmesh_model.backends.base import Backend
from gymmesh_model.config import ModelConfig, SideDataConfig
from gymmesh_resource import Environment
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.rewards import function_environment
from gymmesh_runtime.config import load_config
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.telemetry import one_traceback_of_each
from gymmesh_trainers.weights import (
    PolicyServices,
    WeightsEndpoint,
    endpoints_of,
    model_services,
)

MeshPlace = (
    Environment[Any]
    | type[Environment[Any]]
    | Callable[..., Any]
    | MeshConfig
    | Path
    | str
    | Sequence[str]
)
"""What collects: an environment (an object, a class, a plain reward function, a name,
`file.py:Class`), a configuration
(an object or a YAML file), or where a mesh runs (`HOST:PORT`, several of them, or a registry as
`consul://…`)."""
Model = Backend | ModelConfig | str
"""What answers: a backend of this process (`TokenBackend` with the trainer's engine), a model's
configuration, or the base URL of a vLLM server. For a mesh elsewhere: the name of a model there."""

_MODEL: Final = "gymmesh.model.v1.ModelService"
_SET_S: Final = 30.0
_ATTEMPT_S: Final = 900.0  # seconds of an attempt where the caller does not say


@dataclass(frozen=True, slots=True)
class Policy:
    """How the policy is reached.

    Attributes:
        role: the model service for the role `policy`; empty: the default one.
        addresses: model services to notify of new weights.
        checks: what the environments say of tasks; None: they are elsewhere.
        environments: the names of those; None: not known.
        endpoints: the servers that a configuration names, whose weights can be pushed.
        own: the model of this process that the mesh calls over a relay; None: the mesh has its own.
    """

    mesh: Mesh
    role: str = ""
    addresses: Sequence[str] = ()
    security: SecurityConfig | None = None
    checks: TaskChecks | None = None
    environments: Collection[str] | None = None
    endpoints: Sequence[WeightsEndpoint] = ()
    own: DialedOut | None = None

    async def set_weights_version(self, version: int, adapter: str = "") -> None:
        """Notify the model services that can be reached. Raises MeshError."""
        if self.own is not None:
            await self.own.set_weights_version(version, adapter)
            return
        request = model_pb2.SetWeightsVersionRequest(version=version, adapter=adapter)
        for peer in self._peers().values():
            await peer.SetWeightsVersion(request, timeout=_SET_S)
        if self.addresses:
            await set_weights(self.addresses, version, self.security, adapter)

    @asynccontextmanager
    async def services(self) -> AsyncIterator[PolicyServices]:
        """The model services that can be reached, and those at `addresses`."""
        peers = self._peers()
        async with model_services(self.addresses, self.security) as others:
            yield PolicyServices(peers) + others

    def _peers(self) -> dict[str, Any]:
        """The model services in the mesh's directory, by their ids."""
        directory = self.mesh.directory
        found = directory.serving(_MODEL, self.role or self.mesh.defaults.model)
        return {one.id: directory.peer(one) for one in found}

    async def fetch_side_data(self, side: tokens_pb2.SideData, folder: Path, model: str) -> None:
        """Copy side data from an instance of the model service that has it. Raises MeshError."""
        directory = self.mesh.directory
        found = [directory.peer(one) for one in directory.serving(_MODEL, model)]
        if found or not self.addresses:
            await fetch_side_data(found, side, folder)
            return
        there = PeerDirectory(credentials=Credentials(self.security))
        try:
            peers: list[Any] = [there.plain_peer(address, _MODEL) for address in self.addresses]
            await fetch_side_data(peers, side, folder)
        finally:
            await there.close()


@asynccontextmanager
async def open_place(
    place: MeshPlace,
    model: Model | None,
    *,
    model_name: str = "",
    model_addresses: Sequence[str] = (),
    security: SecurityConfig | None = None,
    timeout_s: float = _ATTEMPT_S,
    side_data: bool = False,
    side_data_path: Path | None = None,
    relay: str = "",
) -> AsyncIterator[Policy]:
    """Open the mesh.

    relay: HOST:PORT of a relay of a remote mesh, which then calls the backend `model` in this
    process, under `model_name` or a name that is drawn.
    timeout_s: seconds that the caller gives to an attempt of a rollout. Where the place is an
    environment, and no configuration says more, nothing in the mesh ends it earlier.
    side_data: whether the policy is to give side data. side_data_path: where a policy of this
    process stores it, unless its configuration says so.

    Raises UserError for a place or model that cannot be meant, ConfigError and MeshError for one
    that cannot be opened.
    """
    addresses = _addresses(place)
    if not addresses and not (isinstance(place, str) and place.startswith(SCHEMES)):
        if relay:
            raise UserError(
                "relay: is only for a remote mesh, but this mesh is local; remove relay"
            )
        config, objects = _embedded(place, model, model_name, timeout_s)
        if side_data:
            config = _with_side_data(config, side_data_path)
        checks = TaskChecks(config.environments, objects.environments)
        with one_traceback_of_each():
            async with embedded(config, objects) as mesh:
                name = config.defaults.model
                is_own = name in objects.backends or name not in config.models
                yield Policy(
                    mesh,
                    "",
                    model_addresses,
                    security,
                    checks,
                    frozenset(config.environments),
                    () if is_own else endpoints_of(config.models[name]),
                )
        return
    if relay:
        if not isinstance(model, Backend):
            raise UserError(
                "relay: also pass model=, the backend that the mesh calls over the relay"
            )
    elif model is not None and not isinstance(model, str):
        raise UserError(
            "model: a remote mesh has its own models. Pass the name of one of these models, "
            "or add relay=, the address of a relay of the remote mesh, or collect in this "
            "process"
        )
    if addresses:
        opened = remote_mesh(addresses, security=security)
    else:
        target = read_target(str(place), MeshConfig().discovery)
        agent = target.agent or MeshConfig().defaults.agent
        target = type(target)(target.discovery, target.address, agent)
        opened = discovered(target, security=security)
    if not isinstance(model, Backend):
        async with opened as mesh:
            yield Policy(mesh, model or "", model_addresses, security)
        return
    # Two trainers that offer the same name would answer for each other.
    name = model_name or f"policy-{uuid.uuid4().hex[:12]}"
    async with opened as mesh, dial_out(relay, name, model, security=security) as own:
        yield Policy(mesh, name, model_addresses, security, own=own)


@asynccontextmanager
async def open_environment(
    place: MeshPlace, name: str = "", *, security: SecurityConfig | None = None
) -> AsyncIterator[tuple[PeerDirectory, str]]:
    """Open an environment alone, without agents and a policy: where it is found, and its name.

    Args:
        place: as for `open_place`, but addresses are those of resource services.
        name: the environment's; empty: the only one, or the configuration's default.

    Raises UserError where it is not clear which, ConfigError and MeshError where it cannot be
    opened.
    """
    addresses = _addresses(place)
    if isinstance(place, str) and place.startswith(SCHEMES):
        addresses = [place]
    if not addresses:
        config, environments = _config(place)
        wanted = name or config.defaults.environment
        if not wanted:
            raise UserError("environment: is required, because the configuration has no default")
        objects = Objects({}, environments)
        async with embedded_environments(config, [wanted], objects) as directory:
            yield directory, wanted
        return
    async with remote_environments(addresses, security=security) as directory:
        found = {one.name for one in directory.instances() if one.service == RESOURCE}
        if not name and len(found) != 1:
            said = ", ".join(sorted(found)) or "none"
            raise UserError(
                f"environment: is required; pass one of these environment names: {said}"
            )
        yield directory, name or found.pop()


def _addresses(place: MeshPlace) -> list[str]:
    """The agents' addresses; empty for a place that is none."""
    if isinstance(place, str):
        host, _, port = place.rpartition(":")
        numbered = bool(host) and port.isdecimal() and "/" not in host
        return [place] if numbered or place.startswith("xds:") else []
    if isinstance(place, Sequence):
        if not place or not all(_addresses(one) for one in place):
            raise UserError("a list of agents must contain at least one HOST:PORT")
        return list(place)
    return []


def _embedded(
    place: MeshPlace, model: Model | None, name_there: str, timeout_s: float = _ATTEMPT_S
) -> tuple[MeshConfig, Objects]:
    config, environments = _config(place, timeout_s)
    backends: dict[str, Backend] = {}
    if name_there and not isinstance(model, str):
        raise UserError("model_name: names a model at a URL; also pass the URL as model='http://…'")
    models = dict(config.models)
    name = config.defaults.model
    if isinstance(model, ModelConfig):
        models[name] = model
    elif isinstance(model, str):
        if "://" not in model:
            raise UserError(f"model: {model!r} is not a URL. Pass http://HOST:PORT/v1 of a server")
        models[name] = ModelConfig(backend="vllm", url=model, model=name_there or None)
    elif model is not None:
        models.setdefault(name, ModelConfig())
        backends[name] = model
    return msgspec.structs.replace(config, models=models), Objects(backends, environments)


def _with_side_data(config: MeshConfig, path: Path | None) -> MeshConfig:
    """The configuration with a folder for the policy's side data, where it names none. Raises
    UserError where none is named at all.
    """
    name = config.defaults.model
    model = config.models.get(name)
    if model is None or model.side_data is not None:
        return config
    if path is None:
        raise UserError(
            "side_data_path: is required with side_data. Pass a folder, or set side_data.path of "
            "the model in the configuration"
        )
    model = msgspec.structs.replace(model, side_data=SideDataConfig(path=str(path)))
    return msgspec.structs.replace(config, models={**config.models, name: model})


def _config(
    place: MeshPlace, timeout_s: float = _ATTEMPT_S
) -> tuple[MeshConfig, dict[str, Environment[Any]]]:
    if isinstance(place, MeshConfig):
        return place, {}
    if isinstance(place, Path) or (isinstance(place, str) and place.endswith((".yaml", ".yml"))):
        return load_config([Path(place)], [], MeshConfig), {}
    if isinstance(place, type) and issubclass(place, Environment):
        place = place()
    if callable(place) and not isinstance(place, type | Environment):
        place = function_environment(place)()
    if isinstance(place, Environment):
        name = type(place).__name__.removesuffix("Environment").lower() or "environment"
        return _with(name, EnvironmentConfig(), timeout_s), {name: place}
    if isinstance(place, str):
        name = place.rpartition(":")[2].removesuffix("Environment").lower()
        return _with(name, EnvironmentConfig(use=place), timeout_s), {}
    raise UserError(
        "expected an environment, a configuration or an address to collect from, not "
        f"{type(place).__name__}"
    )


def _with(name: str, environment: EnvironmentConfig, timeout_s: float) -> MeshConfig:
    """The configuration of one environment, with no limit below what the trainer asks for."""
    base = MeshConfig()
    replace = msgspec.structs.replace
    environment = replace(
        environment,
        session_limit=0,  # as many as there are rollouts in flight
        session_idle_s=max(environment.session_idle_s, math.ceil(timeout_s)),
    )
    agents = {one: replace(agent, max_wall_s=timeout_s) for one, agent in base.agents.items()}
    return replace(
        base,
        agents=agents,
        environments={name: environment},
        defaults=replace(base.defaults, environment=name),
    )
