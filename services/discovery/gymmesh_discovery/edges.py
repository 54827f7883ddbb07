"""Other protocols to read the registry than DiscoveryService. Each protocol is an edge, which the
configuration turns on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.base import RegistryBackend
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_runtime.extras import Extra
from gymmesh_runtime.security import Credentials


class Edge(Protocol):
    """A protocol over the registry's backend."""

    async def open(self, backend: RegistryBackend, credentials: Credentials) -> None:
        """Starts, with a backend that is already open. ``credentials``: of the process."""

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Receives the instance of the discovery service itself."""

    async def close(self) -> None:
        """Stops; harmless when called twice."""

    def drain(self) -> None:
        """Ends streams that would last as long as their callers."""

    def extras(self) -> list[Callable[[Any], None]]:
        """Functions that add the edge's services to the discovery service's gRPC server."""


def edges_of(config: DiscoveryConfig) -> list[Edge]:
    """The edges of a configuration. Raises ConfigError."""
    edges: list[Edge] = []
    if config.xds:
        Extra("xds", ("envoy",)).require("the xDS control plane", path="discovery.xds")
        from gymmesh_discovery.xds.servicer import XdsEdge

        edges.append(XdsEdge())
    if config.http_sd:
        from gymmesh_discovery.http_sd import HttpSdEdge

        edges.append(HttpSdEdge(config.http_sd))
    return edges
