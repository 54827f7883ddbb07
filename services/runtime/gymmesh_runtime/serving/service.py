"""The interface of a service that the runtime serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serving.registration import DiscoveryPeer

IS_FACE = True  # see tools/import_faces.py


@dataclass(frozen=True, slots=True)
class ServiceHost:
    """Where a service's process listens and registers.

    Attributes:
        listen: the host that it listens on.
        advertise: the host that others connect to.
        discovery: the registry; None: nothing is registered.
    """

    listen: str
    advertise: str
    discovery: DiscoveryPeer | None


class Service(ABC):
    """One service of the mesh: its servicers and its life cycle.

    `serve.py` calls these methods in the order of this class. Except for `servicers`, they do
    nothing unless a service overrides them.

    Attributes:
        kind: the full name of its main gRPC service; becomes `Instance.service`.
        name: the name that callers ask for, such as `policy` or `math`.
        instance_id: unique among live instances; set by the code that composes the mesh.
        shared: whether it is a registry in which other processes also register.
    """

    kind: str
    name: str
    instance_id: str
    shared: bool = False

    @property
    def meta(self) -> Mapping[str, str]:
        """The meta that the registry lists, without secrets. It is read after the service was
        opened.
        """
        return {}

    @abstractmethod
    def servicers(self) -> Mapping[str, object]:
        """The servicer of each gRPC service that it offers, by full name."""

    def extras(self) -> Sequence[Callable[[Any], None]]:
        """Functions that add gRPC services outside the contract to a server."""
        return ()

    def hosted(self, host: ServiceHost) -> None:
        """Receives the host, before the service is opened. Not called in a process that serves no
        other process.
        """

    async def open(self, directory: PeerDirectory) -> None:
        """Opens backends in order. Raises a typed error with one clear sentence."""

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Receives the service's instance, once the service listens."""

    def follow_meta(self, changed: Callable[[], None]) -> None:
        """Calls `changed` after each later change of `meta`."""

    def renew_soon(self) -> None:
        """The registry is reachable again: renews what else the service registered there."""

    def drain(self, seconds: float) -> None:
        """The process shuts down: running work has this many seconds to end. Returns at once."""

    async def let_go(self) -> None:
        """Returns when callers hold no more sessions or similar objects here."""

    async def close(self) -> None:
        """Closes backends in reverse order. Bounded; a second call does nothing."""
