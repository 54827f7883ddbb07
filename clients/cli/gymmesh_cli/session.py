"""The mesh of a command: inside it, or elsewhere."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gymmesh_cli.options import MeshOptions
from gymmesh_client import AgentConnector, TaskDefaults, TaskReader
from gymmesh_client.collect_stream import StreamLimits
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
    agents: tuple[str, ...]
    environment: str | None

    @staticmethod
    def of(options: MeshOptions, agents: tuple[str, ...]) -> MeshPlan:
        """The plan that a command's options make; raises ConfigError and UsageError."""
        if agents:
            options.refuse_model_flags()
        said = bool(options.config or options.sets)
        config = options.load() if said or not agents else None
        return MeshPlan(config, agents, options.environment)

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
            known = {mesh.defaults.agent} if mesh else None
            agent = mesh.defaults.agent if mesh else ""
        return TaskReader(TaskDefaults(environment, agent), environments, known)

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
        view["remote"] = bool(self.agents)
        return view

    @asynccontextmanager
    async def open(self, patience_s: float = math.inf) -> AsyncIterator[Mesh]:
        """Open the mesh, or connect to it, whose agents may be lost for `patience_s` at most.

        Raises MeshError and ConfigError.
        """
        if self.agents:
            defaults = self.config.defaults if self.config else None
            reconnect_s = min(StreamLimits().reconnect_s, patience_s)
            async with remote(self.agents, defaults, reconnect_s=reconnect_s) as mesh:
                yield mesh
        else:
            assert self.config is not None
            async with embedded(self.config) as mesh:
                yield mesh


def connector(mesh: Mesh, *, held: bool = False) -> AgentConnector:
    """Finds a mesh's agents by name.

    With `held`, they keep events until `mesh.agents.stored` says that the outcome is on disk.
    """
    return partial(mesh.agents.connect, held=held)
