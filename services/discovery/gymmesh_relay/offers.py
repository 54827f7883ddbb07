"""Which identity may offer what at a relay. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.relay.v1 import relay_pb2
from gymmesh_runtime.contract import methods_of
from gymmesh_runtime.errors import MeshError, field_invalid
from gymmesh_runtime.names import check_name

OFFER: Final = "gymmesh.relay.v1.RelayService/Offer"

_SHORTEST_KEY: Final = 16
_MOST_SERVICES: Final = 16
_MOST_META: Final = 60  # keys; the relay and the registry add some
_META_BYTES: Final = 32_768


def check_offer(request: relay_pb2.OfferRequest) -> None:
    """Raises FIELD_INVALID for an invalid offer."""
    check_name("name", request.name)
    check_name("instance_id", request.instance_id)
    check_name("contract_version", request.contract_version)
    check_name("last_address", request.last_address)
    if len(request.key) < _SHORTEST_KEY:
        raise field_invalid("key", f"has fewer than {_SHORTEST_KEY} characters")
    if len(request.services) > _MOST_SERVICES:
        raise field_invalid("services", f"has more than {_MOST_SERVICES} entries")
    for place, service in enumerate(request.services):
        try:
            methods_of(service)
        except LookupError as error:
            raise field_invalid(f"services[{place}]", f"can't be relayed: {error}") from None
    if len(request.meta) > _MOST_META:
        raise field_invalid("meta", f"has more than {_MOST_META} keys")
    if sum(len(key) + len(value) for key, value in request.meta.items()) > _META_BYTES:
        raise field_invalid("meta", f"exceeds {_META_BYTES} characters")


def check_name_allowed(offers: Mapping[str, Sequence[str]], name: str, identity: str) -> None:
    """Raises NOT_PERMITTED if the configuration does not allow the identity to offer the name."""
    if not offers:
        return
    allowed = [who for pattern, who in offers.items() if _matches(pattern, name)]
    if any(not who or identity in who for who in allowed):
        return
    whose = f"the identity '{identity}'" if identity else "a caller without an identity"
    raise MeshError(
        errors_pb2.ERROR_REASON_NOT_PERMITTED,
        f"{whose} may not offer the name '{name}' at this relay; allow the name for this caller "
        "with 'offers' in the relay's configuration",
        metadata={"method": OFFER},
    )


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
