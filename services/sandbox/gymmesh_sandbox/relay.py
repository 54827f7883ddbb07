"""The targets of a relay's connections: instances of a service of the mesh."""

from __future__ import annotations

from collections.abc import Callable

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory


def relay_target(directory: PeerDirectory, relay: sandbox_pb2.Relay) -> Callable[[], str]:
    """Returns a function that returns the target of the next connection, HOST:PORT.

    The function raises SERVICE_NOT_FOUND while there is no such instance, or while the instance has
    no such address.
    """

    def address() -> str:
        instance = _instance(directory, relay)
        found = ""
        if instance is not None:
            key = relay.address_key
            found = instance.meta.get(key, "") if key else instance.address
        if not found:
            raise MeshError(
                errors_pb2.ERROR_REASON_SERVICE_NOT_FOUND,
                f"The relay finds no address for {relay.service} '{relay.name}'.",
                metadata={"service": relay.service, "name": relay.name},
            )
        return found

    return address


def _instance(directory: PeerDirectory, relay: sandbox_pb2.Relay) -> discovery_pb2.Instance | None:
    if not relay.instance_id:
        return directory.choose(relay.service, relay.name)
    wanted = (relay.instance_id, relay.service, relay.name)
    # One that drains, too: what runs there goes on, and so do its programs' calls.
    known = directory.instances()
    return next((one for one in known if (one.id, one.service, one.name) == wanted), None)
