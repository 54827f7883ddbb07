"""What a service room hands to the runtime to be served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gymmesh_runtime.peers import PeerDirectory


class Service(Protocol):
    """One service of the mesh: its servicers and its life cycle.

    One that has facts for the registry says them in a property `meta`, a mapping of text to text
    without secrets, which is read once the service is open; one whose facts change later has a
    method `follow_meta` too, which takes what is to be called after each change. One that serves
    gRPC services that are not of the contract has a method `extras`, which returns what adds them
    to a server. One that must know where it is served has a method `served_as`, which is given its
    own instance once it listens. One that has to do something when its process goes down has a
    method `drain`, which takes the seconds that what runs has to end; one whose callers hold
    something here over several calls has a coroutine method `let_go`, which returns once nobody
    holds anything any more.
    """

    @property
    def kind(self) -> str:
        """The full name of its main gRPC service; becomes ``Instance.service``."""

    @property
    def name(self) -> str:
        """The name that callers ask for, such as ``policy`` or ``math``."""

    @property
    def instance_id(self) -> str:
        """Unique among live instances; given by the code that composes the mesh."""

    def servicers(self) -> Mapping[str, object]:
        """The servicer for each gRPC service it offers, by full name."""

    async def open(self, directory: PeerDirectory) -> None:
        """Opens backends in order. Raises a typed error with one clear sentence."""

    async def close(self) -> None:
        """Closes them in reverse order. Bounded, and harmless when called twice."""
