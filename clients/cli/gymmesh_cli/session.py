"""The mesh of a command: inside it, or elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from gymmesh_cli.options import MeshOptions
from gymmesh_client import AgentConnector, TaskDefaults, TaskReader
from gymmesh_mesh import Mesh, MeshConfig, embedded, remote
from gymmesh_runtime.config import public_view

# Where and how fast models are called does not change what a run is.
_NOT_IDENTITY: Final = frozenset(
    (
        "url",
        "urls",
        "route_margin",
        "api_key",
        "headers",
        "timeout_s",
        "connect_timeout_s",
        "max_concurrency",
        "max_queue",
        "max_retries",
        "adapt",
        "cache",
    )
)


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """Which mesh to use. `config` is None for a mesh elsewhere of which nothing was said."""

    config: MeshConfig | None
    agent_address: str | None
    environment: str | None

    @staticmethod
    def of(options: MeshOptions, agent_address: str | None) -> MeshPlan:
        """The plan that a command's options make; raises ConfigError and UsageError."""
        if agent_address is not None:
            options.refuse_model_flags()
        said = bool(options.config or options.sets)
        config = options.load() if said or agent_address is None else None
        return MeshPlan(config, agent_address, options.environment)

    def reader(self, mesh: Mesh | None = None) -> TaskReader:
        """Reads tasks with the mesh's defaults, checking the names that are known."""
        if self.config is None:
            environments: Collection[str] | None = None
            environment = self.environment or (mesh.defaults.environment if mesh else "")
        else:
            environments = self.config.environments
            environment = self.config.defaults.environment
        if self.agent_address is None:
            agents: Collection[str] | None = self.config.agents if self.config else None
            agent = self.config.defaults.agent if self.config else ""
        else:
            agents = {mesh.defaults.agent} if mesh else None
            agent = mesh.defaults.agent if mesh else ""
        return TaskReader(TaskDefaults(environment, agent), environments, agents)

    def identity(self) -> dict[str, Any]:
        """What of the plan makes a run what it is: no credentials, endpoints or machine limits."""
        view = {} if self.config is None else public_view(self.config)
        view.pop("mesh", None)
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
        view["remote"] = self.agent_address is not None
        return view

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Mesh]:
        """Open the mesh, or connect to it; raises MeshError and ConfigError."""
        if self.agent_address is not None:
            defaults = self.config.defaults if self.config else None
            async with remote(self.agent_address, defaults) as mesh:
                yield mesh
        else:
            assert self.config is not None
            async with embedded(self.config) as mesh:
                yield mesh


def connector(mesh: Mesh) -> AgentConnector:
    """Finds a mesh's agents by name."""
    return mesh.agents.connect
