"""An instance as an endpoint: its address, weight, place and health. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from envoy.config.core.v3 import base_pb2, health_check_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from google.protobuf import wrappers_pb2

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.xds.names import group_of
from gymmesh_runtime.contract import CONTRACT_VERSION, speaks_ours

Instance = discovery_pb2.Instance

# gRPC refuses localities whose weights add up to more than 32 bits.
_HEAVIEST: Final = 1000
_HEALTH: Final = {
    discovery_pb2.HEALTH_SERVING: health_check_pb2.HEALTHY,
    discovery_pb2.HEALTH_DRAINING: health_check_pb2.DRAINING,
}


class UnusableInstanceError(Exception):
    """The instance cannot be offered to xDS clients; the message says why."""


@dataclass(frozen=True, slots=True)
class XdsEndpoint:
    """One address of a group. ``place`` is region, zone and sub-zone."""

    group: str
    address: str
    port: int
    weight: int
    place: tuple[str, str, str]
    health: int


def endpoint_of(instance: Instance) -> XdsEndpoint | None:
    """The endpoint of an instance; None for a kind that is not offered over xDS.

    Raises UnusableInstanceError for an address that is not an IP address and port (gRPC's clients
    accept no other addresses), and for another major version of the contract.
    """
    group = group_of(instance.service, instance.name)
    if group is None:
        return None
    version = instance.contract_version
    if not speaks_ours(version):
        raise UnusableInstanceError(
            f"the instance uses contract version '{version}', but the control plane uses "
            f"{CONTRACT_VERSION}"
        )
    address, port = _ip_and_port(instance.address)
    weight = min(instance.weight or 1, _HEAVIEST)
    at = instance.locality
    # Within a locality gRPC's round robin knows no weights: instances of other weights are one of
    # their own.
    sub_zone = at.host if weight == 1 else f"{at.host};weight={weight}"
    health = _HEALTH.get(instance.health, health_check_pb2.UNHEALTHY)
    return XdsEndpoint(group, address, port, weight, (at.region, at.zone, sub_zone), health)


def assignment_of(
    group: str, endpoints: Iterable[XdsEndpoint]
) -> endpoint_pb2.ClusterLoadAssignment:
    """All endpoints of a group by locality. The order depends only on the endpoints."""
    by_address: dict[tuple[str, int], XdsEndpoint] = {}
    for one in sorted(endpoints, key=_order):
        by_address[one.address, one.port] = one  # clients refuse an address that stands there twice
    places: dict[tuple[str, str, str], list[XdsEndpoint]] = {}
    for _, one in sorted(by_address.items()):
        places.setdefault(one.place, []).append(one)
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=group)
    for place, members in sorted(places.items()):
        region, zone, sub_zone = place
        # Of those that take calls: gRPC gives a locality its share whether they do or not.
        weight = sum(one.weight for one in members if one.health == health_check_pb2.HEALTHY)
        assignment.endpoints.append(
            endpoint_components_pb2.LocalityLbEndpoints(
                locality=base_pb2.Locality(region=region, zone=zone, sub_zone=sub_zone),
                load_balancing_weight=wrappers_pb2.UInt32Value(value=weight or 1),
                lb_endpoints=map(_lb_endpoint, members),
            )
        )
    return assignment


def _order(one: XdsEndpoint) -> tuple[bool, int, int, tuple[str, str, str]]:
    # Of two with one address the one that takes calls comes last, and stays.
    return one.health == health_check_pb2.HEALTHY, one.health, one.weight, one.place


def _lb_endpoint(one: XdsEndpoint) -> endpoint_components_pb2.LbEndpoint:
    endpoint = endpoint_components_pb2.LbEndpoint(health_status=one.health)
    socket = endpoint.endpoint.address.socket_address
    socket.address = one.address
    socket.port_value = one.port
    endpoint.load_balancing_weight.value = one.weight
    return endpoint


def _ip_and_port(target: str) -> tuple[str, int]:
    host, colon, digits = target.rpartition(":")
    for scheme in ("ipv4:", "ipv6:"):
        host = host.removeprefix(scheme)
    problem = f"the instance's address '{target}' is not an IP address and port"
    if not colon or not (digits.isascii() and digits.isdecimal()) or not 0 < int(digits) < 65536:
        raise UnusableInstanceError(problem)
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise UnusableInstanceError(problem) from None
    if bracketed != (ip.version == 6) or "%" in host:
        raise UnusableInstanceError(problem)
    if ip.is_unspecified or ip.is_multicast:
        raise UnusableInstanceError(f"clients can't connect to the instance's address '{target}'")
    return str(ip), int(digits)
