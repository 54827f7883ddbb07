"""What is wrong with a configuration that can be read: names that lead nowhere, and classes that
cannot be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.serving.service import Service


def problems_of(config: MeshConfig) -> list[str]:
    """A sentence for each problem. Environments and agents are made, not opened."""
    return [*_defaults(config), *_environments(config), *_agents(config)]


def wrong_classes(document: Mapping[str, Any]) -> list[ConfigError]:
    """The mistakes of environments whose class cannot be loaded, in a document that no
    configuration can be made of, as its keys are wrong: so that all is reported at once.
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
                    f"environments.{spec.name}: asks the model {model!r}, which is not in models; "
                    f"{nearest(model, config.models)}"
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
                f"{path}: uses the sandbox service {name!r}, which is not in sandboxes; "
                f"{nearest(name, config.sandboxes)}"
            )
