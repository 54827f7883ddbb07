"""The mesh of a command: inside it, or elsewhere."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from gymmesh_cli.options import MeshOptions, SecurityOptions
from gymmesh_client import TaskDefaults, TaskReader
from gymmesh_client.agents import AGENT
from gymmesh_client.collect_stream import StreamLimits
from gymmesh_mesh import SCHEMES, Mesh, MeshConfig, discovered, embedded, read_target, remote
from gymmesh_mesh.authoring.placing import rows_of_examples
from gymmesh_mesh.authoring.task_checks import TaskChecks
from gymmesh_runtime.config import public_view
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.telemetry import LogFormat

_NOTHING_SAID: Final = SecurityOptions()

# Where and how fast models are called does not change what a run is.
_NOT_IDENTITY: Final = (
    *("url", "urls", "route_margin", "api_key", "headers", "timeout_s", "connect_timeout_s"),
    *("max_concurrency", "max_queue", "max_retries", "adapt", "cache"),
)


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """Which mesh to use. `config` is None for a remote mesh without a configuration; `files` are
    the files that it was read from. validate_examples: the command that checks the example tasks of
    the default environment; empty: the files alone do not determine them.
    """

    config: MeshConfig | None
    agents: tuple[str, ...]
    environment: str | None
    files: tuple[Path, ...] = ()
    security: SecurityConfig | None = None
    validate_examples: str = ""

    @staticmethod
    def of(
        options: MeshOptions, agents: tuple[str, ...], security: SecurityOptions = _NOTHING_SAID
    ) -> MeshPlan:
        """The plan that a command's options make; raises ConfigError and UsageError."""
        if agents:
            options.refuse_model_flags()
        else:
            security.refuse()
        if len(agents) > 1 and any(one.startswith(SCHEMES) for one in agents):
            shown = next(one for one in SCHEMES if any(agent.startswith(one) for agent in agents))
            raise click.UsageError(
                f"--agent {shown}… already finds all instances. Remove the other --agent options"
            )
        said = bool(options.config or options.sets or options.kept)
        config = options.load() if said or not agents else None
        presented = security.over(config.security if config else None)
        command = ""
        if options.config and not (options.sets or options.environment_place or options.kept):
            files = (word for file in options.config for word in ("--config", str(file)))
            command = shlex.join(["gym-cli", "data", "validate", *files])
        return MeshPlan(config, agents, options.environment, options.config, presented, command)

    @property
    def log_format(self) -> LogFormat:
        """How the configuration wants log lines."""
        return "text" if self.config is None else self.config.mesh.log_format

    def checks(self) -> TaskChecks | None:
        """The environments' checks of tasks; None for remote environments."""
        if self.agents or self.config is None:
            return None
        return TaskChecks(self.config.environments)

    def examples(self) -> list[dict[str, Any]]:
        """The rows of the default environment's examples. Raises ConfigError and UsageError."""
        if self.agents or self.config is None:
            raise click.UsageError(
                "pass the tasks with --input FILE: this command can't read the example "
                "tasks of remote environments"
            )
        return rows_of_examples(self.config, self.config.defaults.environment)

    @property
    def examples_name(self) -> str:
        """How messages name the default environment's examples."""
        return "" if self.config is None else f"examples of {self.config.defaults.environment}"

    def inputs(self) -> dict[str, list[Path]]:
        """The files that the mesh is read from and the files that its configuration names, by their
        descriptions for the user.
        """
        named = files_named(public_view(self.config), self.files) if self.config else []
        return {"--config": list(self.files), "the configuration": named}

    def reader(self, mesh: Mesh | None = None) -> TaskReader:
        """Reads tasks with the mesh's defaults, checking the names that are known."""
        if self.config is None:
            environments: Collection[str] | None = None
            environment = self.environment or (mesh.defaults.environment if mesh else "")
        else:
            environments = self.config.environments
            environment = self.config.defaults.environment
        if not self.agents:
            known: Collection[str] | None = self.config.agents if self.config else None
            agent = self.config.defaults.agent if self.config else ""
        else:
            known = _agents_of(mesh) | {mesh.defaults.agent} if mesh else None
            agent = mesh.defaults.agent if mesh else ""
        return TaskReader(TaskDefaults(environment, agent), environments, known)

    def unused(self, mesh: Mesh, named: Collection[str]) -> list[str]:
        """The agents at the addresses of --agent that no task names. Of a registry: none, for it
        also has the agents of others.
        """
        addressed = self.agents and not self.agents[0].startswith(SCHEMES)
        return sorted(_agents_of(mesh).difference(named)) if addressed else []

    def identity(self) -> dict[str, Any]:
        """What identifies the plan's run, without credentials, endpoints or machine limits."""
        view = {} if self.config is None else public_view(self.config)
        for machine in ("mesh", "discovery", "security"):
            view.pop(machine, None)
        models = view.get("models", {})
        view["models"] = {
            name: {key: value for key, value in model.items() if key not in _NOT_IDENTITY}
            for name, model in models.items()
        }
        for agent in view.get("agents", {}).values():
            agent.pop("collect", None)  # limits of the machine
        for environment in view.get("environments", {}).values():
            environment.pop("mcp", None)  # outside agents have no part in a run
        view["environment"] = self.environment
        view["remote"] = bool(self.agents)
        return view

    def resolved(self) -> dict[str, Any]:
        """The whole configuration as JSON values without secrets, and where the mesh is."""
        view: dict[str, Any] = {} if self.config is None else public_view(self.config)
        return view | {"remote": list(self.agents)} if self.agents else view

    def open(self, patience_s: float = math.inf) -> AbstractAsyncContextManager[Mesh]:
        """The mesh, opened or connected to, whose agents may be lost for `patience_s` at most.

        Opening raises MeshError and ConfigError.
        """
        if not self.agents:
            assert self.config is not None
            return embedded(self.config)
        defaults = self.config.defaults if self.config else None
        reconnect_s = min(StreamLimits().reconnect_s, patience_s)
        if not self.agents[0].startswith(SCHEMES):
            return remote(self.agents, defaults, reconnect_s=reconnect_s, security=self.security)
        config = self.config or MeshConfig()
        target = read_target(self.agents[0], config.discovery)
        target = replace(target, agent=target.agent or config.defaults.agent)
        return discovered(target, defaults, reconnect_s=reconnect_s, security=self.security)


def _agents_of(mesh: Mesh) -> set[str]:
    """The names of a mesh's agents."""
    return {one.name for one in mesh.directory.instances() if one.service == AGENT}


def files_named(config: Any, files: Iterable[Path]) -> list[Path]:
    """The files that a configuration's values name, such as an environment's code or a list of
    answers: `path` or `path:name`, from the working directory or from that of one of `files`.
    """
    if isinstance(config, dict):
        return [path for value in config.values() for path in files_named(value, files)]
    if isinstance(config, list):
        return [path for value in config for path in files_named(value, files)]
    if not isinstance(config, str):
        return []
    folders = [Path(), *(file.parent for file in files)]
    spelled = {config, config.rpartition(":")[0]} - {""}
    return [path for folder in folders for one in spelled if _is_file(path := folder / one)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a path, or a zero byte in it
        return False
