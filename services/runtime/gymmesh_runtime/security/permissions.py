"""Which permission each method requires, and whether a caller has it. Pure.

Exchange, the mux, only requires that its caller is recognised, because each call on it is checked
separately. Health is open to all callers. A method without a permission is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.contract import methods_by_full_name
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.config import IdentityConfig
from gymmesh_runtime.security.identity import Identity

# What a server also offers that is not of the contract, which therefore cannot say it itself.
_FOREIGN: Final[Mapping[str, str]] = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": "observe",
    "grpc.reflection.v1alpha.ServerReflection": "observe",
}


def permission_of(method: str) -> str:
    """The permission that a method requires, by `package.Service/Method`; empty: no caller may call
    it.

    The permission is an option of the RPC in the contract.
    """
    service = method.rpartition("/")[0]
    if service in _FOREIGN:
        return _FOREIGN[service]
    spec = methods_by_full_name().get(method)
    return "" if spec is None else spec.permission


def may_register(
    identities: Mapping[str, IdentityConfig], identity: str, service: str, method: str
) -> None:
    """Raises NOT_PERMITTED for a kind of service that the caller may not register. Otherwise a
    service with a stolen certificate could take the place of another kind.

    ``service``: the full name of the service's main gRPC service. Without a configured identity, a
    caller may register all kinds.
    """
    known = identities.get(identity)
    if known is None or not known.registers:
        return
    noun = service.removeprefix("gymmesh.").partition(".")[0]
    named = f"gymmesh.{noun}.v1.{noun.capitalize()}Service"
    if service != named or noun not in known.registers:
        raise MeshError(
            errors_pb2.ERROR_REASON_NOT_PERMITTED,
            f"the identity '{identity}' may not register {service or 'this service'}, only "
            f"services of these kinds: {', '.join(known.registers)}",
            metadata={"method": method},
        )


def refusal_of(identity: Identity | None, method: str) -> MeshError | None:
    """Why an identity may not call a method; None: it may. ``identity`` None: an unknown caller."""
    if identity is None:
        return MeshError(
            errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
            "the server does not recognise the caller. Present a certificate or bearer token of an "
            "identity in the server's configuration (security.identities), or, to a collector's "
            "--stream-listen, the token of its --stream-token-file",
        )
    permission = permission_of(method)
    if permission in identity.may:
        return None
    takes = (
        f"which requires the permission '{permission}'"
        if permission
        else "which no identity may call"
    )
    return MeshError(
        errors_pb2.ERROR_REASON_NOT_PERMITTED,
        f"the identity '{identity.name}' may not call {method}, {takes}",
        metadata={"method": method},
    )
