"""What a service room hands to the runtime to be served."""

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

    `serve.py` calls these methods, in the order in which they are here. All but `servicers` do
    nothing unless a service overrides them.

    Attributes:
        kind: the full name of its main gRPC service; becomes `Instance.service`.
        name: what callers ask for, such as `policy` or `math`.
        instance_id: unique among live instances; given by the code that composes the mesh.
        shared: whether it is a registry in which other processes register, too.
    """

    kind: str
    name: str
    instance_id: str
    shared: bool = False

    @property
    def meta(self) -> Mapping[str, str]:
        """What the registry lists with it, without secrets; read once the service is open."""
        return {}

    @abstractmethod
    def servicers(self) -> Mapping[str, object]:
        """The servicer for each gRPC service it offers, by full name."""

    def extras(self) -> Sequence[Callable[[Any], None]]:
        """What adds gRPC services that are not of the contract to a server."""
        return ()

    def hosted(self, host: ServiceHost) -> None:
        """Learns what its process can do for it, before it is opened; not called in a process that
        serves nobody else.
        """

    async def open(self, directory: PeerDirectory) -> None:
        """Opens backends in order. Raises a typed error with one clear sentence."""

    def served_as(self, instance: discovery_pb2.Instance) -> None:
        """Learns where it is served, once it listens."""

    def follow_meta(self, changed: Callable[[], None]) -> None:
        """Calls `changed` after each later change of `meta`."""

    def renew_soon(self) -> None:
        """The registry came back: renews what the service has registered there beside itself."""

    def drain(self, seconds: float) -> None:
        """Its process goes down: what runs has this long to end. Returns at once."""

    async def let_go(self) -> None:
        """Returns once callers hold nothing here over several calls any more."""

    async def close(self) -> None:
        """Closes backends in reverse order. Bounded, and harmless when called twice."""
