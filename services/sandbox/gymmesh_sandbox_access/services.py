"""The sandbox services of one environment or agent, by the names that it uses for them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, Literal

from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox_access.calls import SANDBOX_SERVICE
from gymmesh_sandbox_access.client import SandboxClient
from gymmesh_sandbox_access.connection import SandboxUse
from gymmesh_sandbox_access.handle import SandboxHandle

_START_S: Final = 60.0  # for the services to appear, when the mesh starts
_CLOSE_S: Final = 15.0


class SandboxUser(ABC):
    """A service that uses sandbox services; the mesh must provide them."""

    @property
    @abstractmethod
    def sandboxes(self) -> SandboxServices:
        """The sandbox services that it uses; known before it is open. Raises ConfigError."""


class SandboxServices:
    """The clients that all sessions of an environment, or all attempts of an agent, share.

    user, name: the environment or agent, for messages. used: its own names for sandbox services.
    mapped: for its own names, the names of services in the mesh.
    Raises ConfigError if a mapped name is not in `used`.
    """

    def __init__(
        self,
        user: Literal["environment", "agent"],
        name: str,
        used: Collection[str],
        mapped: Mapping[str, str],
    ) -> None:
        self._user, self._name = user, name
        self._used = frozenset(used)
        self._mapped = mapped
        self._clients: dict[str, SandboxClient] = {}
        self._borrowing: SandboxClient | None = None
        if (stray := next((own for own in mapped if own not in self._used), None)) is not None:
            raise ConfigError(
                f"the {user} declares no sandbox service {stray!r}; {nearest(stray, self._used)}",
                path=f"{user}s.{name}",
            )

    def __bool__(self) -> bool:
        """Whether any sandbox service is used."""
        return bool(self._used)

    @property
    def names(self) -> list[str]:
        """The names of the services in the mesh, sorted."""
        return sorted({self._mapped.get(name, name) for name in self._used})

    @property
    def mapped(self) -> list[str]:
        """The names in `names` that the configuration set. These services must exist."""
        return sorted(set(self._mapped.values()))

    @property
    def own(self) -> list[str]:
        """The names in `names` that the configuration did not set, sorted. If nobody serves one
        of them, the user's process runs it.
        """
        return [name for name in self.names if name not in self.mapped]

    async def open(self, directory: PeerDirectory) -> None:
        """Sets the directory, and waits up to a minute for the services. Raises ConfigError."""
        self._borrowing = SandboxClient(directory)
        for name in self._used:
            service = self._mapped.get(name, name)
            self._clients[name] = SandboxClient(directory, service)
            try:
                await directory.pick(SANDBOX_SERVICE, service, timeout=_START_S)
            except MeshError as error:
                raise ConfigError(
                    f"the {self._user} uses the sandbox service {name!r}, but {error.message}. Add "
                    f"a service with this name under 'sandboxes', or map the name: "
                    f"sandboxes: {{{name}: NAME}}",
                    path=f"{self._user}s.{self._name}",
                ) from None

    async def close(self) -> None:
        """Ends all remaining sandboxes. Takes bounded time."""
        clients = list(self._clients.values())
        self._clients.clear()
        if self._borrowing is not None:
            clients.append(self._borrowing)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(client.close() for client in clients))

    def borrow(self, grant: grant_pb2.SandboxGrant, use: SandboxUse) -> SandboxHandle:
        """A sandbox that another service lends, of any sandbox service."""
        if self._borrowing is None:
            raise self._not_open()
        return self._borrowing.attach(grant, use=use)

    def client(self, name: str) -> SandboxClient:
        """The client of a service, by the user's own name for the service.

        Raises ValueError for a name that the user does not declare.
        """
        client = self._clients.get(name)
        if client is not None:
            return client
        if name in self._used:
            raise self._not_open()
        raise ValueError(
            f"the {self._user} {self._name!r} does not declare the sandbox service {name!r}; "
            f"{nearest(name, self._used)}"
        )

    def _not_open(self) -> RuntimeError:
        return RuntimeError(
            f"the {self._user} is not open yet, so its sandbox services are not known yet"
        )
