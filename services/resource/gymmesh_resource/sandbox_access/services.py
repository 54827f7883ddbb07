"""The sandbox services of one environment, by its own names for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.sandbox_access.calls import SANDBOX_SERVICE
from gymmesh_resource.sandbox_access.client import SandboxClient
from gymmesh_resource.sandbox_access.spec import SandboxSpec
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_START_S: Final = 60.0  # for the services to appear, when the mesh starts
_CLOSE_S: Final = 15.0


class SandboxServices:
    """The clients that an environment's sessions share.

    declared: the specs of its class by role. mapped: the names of services in the mesh by its own.
    Raises DefinitionError for a mapping of a name that the environment does not have.
    """

    def __init__(
        self, environment: str, declared: Mapping[str, SandboxSpec], mapped: Mapping[str, str]
    ) -> None:
        self._environment = environment
        self.declared = declared
        self._own = {spec.service for spec in declared.values()}
        self._services = mapped
        self._clients: dict[str, SandboxClient] = {}
        if (stray := next((name for name in mapped if name not in self._own), None)) is not None:
            raise DefinitionError(
                f"the environment uses no sandbox service {stray!r}; {nearest(stray, self._own)}"
            )

    def __bool__(self) -> bool:
        """Whether the environment uses sandboxes."""
        return bool(self._own)

    @property
    def names(self) -> list[str]:
        """The names of the services in the mesh, sorted."""
        return sorted({self._services.get(name, name) for name in self._own})

    @property
    def mapped(self) -> list[str]:
        """Those of `names` that the configuration chose; the others may be made for it alone."""
        return sorted(set(self._services.values()))

    async def open(self, directory: PeerDirectory) -> None:
        """Takes the directory, and waits up to a minute for the services. Raises ConfigError."""
        for name in self._own:
            service = self._services.get(name, name)
            self._clients[name] = SandboxClient(directory, service)
            try:
                await directory.pick(SANDBOX_SERVICE, service, timeout=_START_S)
            except MeshError as error:
                raise ConfigError(
                    f"the environment uses a sandbox service {name!r}, and {error.message}; add "
                    f"one of that name under sandboxes, or map it: sandboxes: {{{name}: NAME}}",
                    path=f"environments.{self._environment}",
                ) from None

    async def close(self) -> None:
        """Ends every sandbox that is left. Bounded."""
        clients = list(self._clients.values())
        self._clients.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(client.close() for client in clients))

    def client(self, spec: SandboxSpec) -> SandboxClient:
        """The client of a spec's service. Raises DefinitionError for one that isn't declared."""
        client = self._clients.get(spec.service)
        if client is not None:
            return client
        if spec.service in self._own:
            raise RuntimeError("the environment is not open: sandboxes are opened in sessions")
        raise DefinitionError(
            f"The environment {self._environment!r} uses a sandbox service {spec.service!r} that "
            "it does not declare; declare a SandboxSpec with this service in its class."
        )
