"""Finds mistakes in a configuration that can be read: unknown names, and classes that cannot be
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gymmesh_agent.service import AgentService
from gymmesh_mesh.compose import (
    make_service,
    models_called,
    own_sandboxes,
    sandboxes_used,
    specs_of,
)
from gymmesh_mesh.config import MeshConfig
from gymmesh_resource import DefinitionError
from gymmesh_resource.registry import environment_class
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.serving.service import Service
from gymmesh_sandbox_access import reaches_agent


def problems_of(config: MeshConfig) -> list[str]:
    """A sentence for each problem. Environments and agents are made, not opened."""
    return [
        *_defaults(config),
        *_environments(config),
        *_agents(config),
        *_program_networks(config),
    ]


def wrong_classes(document: Mapping[str, Any]) -> list[ConfigError]:
    """The mistakes of environments whose class cannot be loaded, in a document whose keys are wrong
    and that is therefore no configuration. With these, all mistakes can be reported at once.
    """
    environments = document.get("environments")
    found = list[ConfigError]()
    for name, one in environments.items() if isinstance(environments, dict) else ():
        use = one.get("use") if isinstance(one, dict) else None
        if not isinstance(use, str) or "${" in use:
            continue
        try:
            environment_class(use)
        except DefinitionError as error:
            found.append(ConfigError(str(error), path=f"environments.{name}.use"))
    return found


def _defaults(config: MeshConfig) -> Iterator[str]:
    for key, name, known in (
        ("environment", config.defaults.environment, config.environments),
        ("agent", config.defaults.agent, config.agents),
        ("model", config.defaults.model, config.models),
    ):
        if name not in known:
            yield f"defaults.{key}: there is no {key} {name!r}; {nearest(name, known)}"


def _environments(config: MeshConfig) -> Iterator[str]:
    for spec in specs_of(config):
        if spec.kind != "environment":
            continue
        try:
            service = make_service(spec)
        except ConfigError as error:
            yield str(error)
            continue
        for model in models_called(service):
            if model not in config.models:
                yield (
                    f"environments.{spec.name}: uses model {model!r}, which is not in "
                    f"`models`; {nearest(model, config.models)}"
                )
        yield from _sandboxes(config, service, f"environments.{spec.name}")


def _agents(config: MeshConfig) -> Iterator[str]:
    for spec in specs_of(config):
        if spec.kind != "agent":
            continue
        try:
            service = make_service(spec)
            if isinstance(service, AgentService):
                service.make_agent()
            yield from _sandboxes(config, service, f"agents.{spec.name}")
        except ConfigError as error:
            yield str(error)


def _sandboxes(config: MeshConfig, service: Service, path: str) -> Iterator[str]:
    for name in set(sandboxes_used(service)) - set(own_sandboxes(service)):
        if name not in config.sandboxes:
            yield (
                f"{path}: uses sandbox service {name!r}, which is not in `sandboxes`; "
                f"{nearest(name, config.sandboxes)}"
            )


def _player(
    config: MeshConfig, agent: AgentService, environments: Sequence[ResourceService]
) -> Iterator[str]:
    """An agent that has the environment play, where none does: the default agent with the default
    environment, another one with any.
    """
    if not agent.make_agent().wants_play:
        return
    usual = config.defaults
    asked = [one for one in environments if one.name == usual.environment]
    if agent.name != usual.agent or not asked:
        asked = list(environments)
    if asked and not any(one.environment.plays for one in asked):
        names = ", ".join(repr(one.name) for one in asked)
        yield (
            f"agents.{agent.name}: the option `program: environment` works only with "
            f"environments that play their own episodes. Environments that can't: {names}. "
            "Use the agent tool_loop, or set another program"
        )


def _program_networks(config: MeshConfig) -> Iterator[str]:
    """Agents that run a program in a sandbox that no environment lends with a way to the gateway:
    the default agent in that of the default environment, another one in any.
    """
    agents, environments = list[AgentService](), list[ResourceService]()
    for spec in specs_of(config):
        with suppress(ConfigError):  # reported before
            service = make_service(spec)
            if isinstance(service, AgentService):
                agents.append(service)
            elif isinstance(service, ResourceService):
                environments.append(service)
    for agent in agents:
        with suppress(ConfigError):
            yield from _program_network(config, agent, environments)
            yield from _player(config, agent, environments)


def _program_network(
    config: MeshConfig, agent: AgentService, environments: Sequence[ResourceService]
) -> Iterator[str]:
    role, usual = agent.make_agent().program_sandbox, config.defaults
    found = {one.name: lent for one in environments if (lent := one.lent_spec(role)) is not None}
    if agent.name == usual.agent and usual.environment in found:
        found = {usual.environment: found[usual.environment]}
    if any(reaches_agent(lent.network) for lent in found.values()):
        return
    for name, lent in found.items():
        yield (
            f"environments.{name}: the network of its sandbox {role!r} is {lent.network!r}, so "
            f"programs of agent {agent.name!r} can't reach the model. Set this network to 'agent'"
        )
