"""What a tool server needs of the service whose tools it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gymmesh_resource.environment import Environment
from gymmesh_resource.serving import SessionStore


class OfferedService(Protocol):
    """The resource service whose tools are offered."""

    name: str
    environment: Environment[Any]
    sessions: SessionStore[Any]

    def servicers(self) -> Mapping[str, object]:
        """Its servicers by the full name of their gRPC service."""
