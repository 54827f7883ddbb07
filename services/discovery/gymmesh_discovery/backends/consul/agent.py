"""The Consul agent of a registry, as its leases and watches call it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.printable import Warnings
from gymmesh_discovery.config import ConsulConfig
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.extras import Extra

if TYPE_CHECKING:
    from gymmesh_discovery.backends.consul.client import ConsulAnswer, ConsulClient

_CALL_S: Final = 4.0


class ConsulAgent:
    """One Consul agent, between `open` and `close`. Its calls raise PEER_UNAVAILABLE."""

    def __init__(self, config: ConsulConfig) -> None:
        self._config = config
        self._client: ConsulClient | None = None
        self.warnings = Warnings()

    def open(self) -> None:
        """Make the client. Raises ConfigError."""
        self._client = make_client(self._config)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def client(self) -> ConsulClient:
        """The client. Raises PEER_UNAVAILABLE when not open."""
        if self._client is None:
            raise MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "the registry is not open")
        return self._client

    async def known(self, instance_id: str) -> dict[str, Any] | None:
        """What the agent says of a service of its own; None if it knows none of this id."""
        path = f"/v1/agent/health/service/id/{quoted(instance_id)}"
        answer = await self.client.read(path, timeout=_CALL_S)
        if answer.status == 404:
            return None
        known = self.json_of(answer)
        if not isinstance(known, dict) or not isinstance(known.get("Service"), dict):
            raise self.client.strange("it describes no service")
        return known

    async def write(
        self, path: str, params: Collection[tuple[str, str]] = (), body: Any = None
    ) -> None:
        """Change something at the agent. Raises LEASE_NOT_FOUND for an instance it forgot."""
        answer = await self.client.write(path, list(params), body, timeout=_CALL_S)
        if answer.status == 404 and "/deregister/" not in path:
            raise lease_not_found()  # forgotten since the last look

    def json_of(self, answer: ConsulAnswer) -> Any:
        """An answer's JSON. Raises PEER_UNAVAILABLE for what is none."""
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise self.client.strange("its answer is no JSON") from None


def make_client(config: ConsulConfig) -> ConsulClient:
    """A client of the agent. Raises ConfigError."""
    Extra("consul", ("consul",)).require("discovery by Consul")
    from gymmesh_discovery.backends.consul.client import ConsulClient

    return ConsulClient(config)


def quoted(part: str) -> str:
    """One part of a path."""
    return quote(part, safe="")


def lease_not_found() -> MeshError:
    """LEASE_NOT_FOUND."""
    return MeshError(
        errors_pb2.ERROR_REASON_LEASE_NOT_FOUND,
        "Consul does not know the instance under this lease; register again",
    )
