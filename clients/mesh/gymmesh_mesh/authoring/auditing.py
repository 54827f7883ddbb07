"""Audits of environments, in this process or at an address."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit import (
    FILE,
    AuditOptions,
    GoldKey,
    Meant,
    PeakMemory,
    Player,
    Report,
    ScriptedModel,
    audit,
    read_deliberate,
)
from gymmesh_audit.audit import GoldsOf
from gymmesh_mesh.compose import make_service, open_here, sandboxes_for, specs_of
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.verifying import remote_environments
from gymmesh_resource import Environment
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.sample_arguments import CannotMakeUp, made_up
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import SecurityConfig

__all__ = ["JudgesGroups", "audit_address", "audit_here"]

_MODEL: Final = "gymmesh.model.v1.ModelService"


class JudgesGroups(ConfigError):
    """The environment judges groups of rollouts, and the audit plays one rollout at a time."""


async def audit_here(
    name: str,
    environment: EnvironmentConfig,
    config: MeshConfig | None,
    options: AuditOptions,
    *,
    tasks: Sequence[rollout_pb2.Task] = (),
    known: GoldsOf | None = None,
    instance: Environment[Any] | None = None,
) -> Report:
    """Open an environment in this process and audit it.

    The environment calls the models of `config`. If `config` is None, scripted models answer.
    `instance`: the environment object, for a caller that made it. Raises ConfigError, MeshError,
    and JudgesGroups for an environment that judges groups of rollouts.
    """
    served = replace(environment, audit=True, session_idle_s=0)
    service = ResourceService(served, name, f"{name}-audit", environment=instance)
    async with AsyncExitStack() as stack:
        directory = PeerDirectory()
        stack.push_async_callback(directory.close)
        scripted = await _models(service, config, directory, stack)
        for sandboxes in sandboxes_for([service], config):
            await open_here(sandboxes, directory, stack)
        opened = await open_here(service, directory, stack)
        options = _with_list(options, service.environment, environment.options, given=bool(tasks))
        player = Player(directory, opened, make_arguments=_arguments, scripted=scripted)
        return await _audited(
            player, name, options, tasks, known, scripted is not None, PeakMemory()
        )


async def audit_address(
    address: str,
    options: AuditOptions,
    *,
    config: MeshConfig | None = None,
    security: SecurityConfig | None = None,
    tasks: Sequence[rollout_pb2.Task] = (),
    known: GoldsOf | None = None,
) -> AsyncIterator[Report]:
    """Audit each environment at an address. Raises ConfigError, MeshError.

    The configuration of a remote environment is not known, so deliberate entries must not have
    options.
    """
    for entry in options.deliberate or ():
        if entry.options:
            raise ConfigError(
                f"deliberate entry {entry} has options, but gym-cli does not know the options of "
                f"the environment at {address}. Remove the entry, or the key options"
            )
    async with remote_environments([address], config, security=security) as directory:
        refused: ConfigError | None = None
        for instance in directory.instances():
            player = Player(directory, instance, make_arguments=_arguments)
            try:
                yield await _audited(player, instance.name, options, tasks, known, scripted=False)
            except JudgesGroups as error:  # after the other environments at this address
                refused = error
        if refused is not None:
            raise refused


async def _audited(
    player: Player,
    name: str,
    options: AuditOptions,
    tasks: Sequence[rollout_pb2.Task],
    known: GoldsOf | None,
    scripted: bool,
    memory: PeakMemory | None = None,
) -> Report:
    await player.open()
    if player.about.judges_groups:
        raise JudgesGroups(
            f"the environment {name!r} judges groups of rollouts (verify_group), but the audit "
            "plays one rollout at a time. Put the rules for one rollout into a class with a plain "
            "verify, and audit this class"
        )
    chosen = list(tasks) or await player.example_tasks(1000)
    problem = known.problem(chosen) if isinstance(known, GoldKey) else ""
    if problem:
        raise ConfigError(f"--gold: {problem}")
    return await audit(player, name, chosen, options, known=known, scripted=scripted, memory=memory)


async def _models(
    service: ResourceService,
    config: MeshConfig | None,
    directory: PeerDirectory,
    stack: AsyncExitStack,
) -> ScriptedModel | None:
    """Open the models of the configuration, or a scripted one in place of all; the latter."""
    specs = () if config is None else specs_of(config)
    models = {one.name: one for one in specs if one.kind == "model"}
    scripted = ScriptedModel()
    live = False
    for model in service.model_names:
        if model in models:
            live = True
            await open_here(make_service(models[model]), directory, stack)
        else:
            instance = discovery_pb2.Instance(
                id=model, service=_MODEL, name=model, health=discovery_pb2.HEALTH_SERVING
            )
            directory.add_direct(instance, {_MODEL: scripted})
    return None if live else scripted


def _with_list(
    options: AuditOptions,
    environment: Environment[Any],
    configured: Mapping[str, Any],
    *,
    given: bool,
) -> AuditOptions:
    """The options with the entries that are for the environment as it is configured.

    given: whether the tasks are the caller's. Of the environment's own examples a finding must come
    for each entry; as it is configured otherwise, for those that name the configuration.
    """
    listed = _own_list(environment) if options.deliberate is None else options.deliberate
    meant = [one for one in listed if one.applies_to(configured)]
    named = [one for one in meant if one.options or not configured]
    return dataclasses.replace(options, deliberate=meant, must_find=[] if given else named)


def _own_list(environment: Environment[Any]) -> list[Meant]:
    """What the environment means, by the file beside the module of its class."""
    module = sys.modules.get(type(environment).__module__)
    source = getattr(module, "__file__", None)
    path = Path(source).parent / FILE if source else None
    return read_deliberate(path) if path is not None and path.is_file() else []


def _arguments(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    try:
        return made_up(schema)
    except CannotMakeUp:
        return None
