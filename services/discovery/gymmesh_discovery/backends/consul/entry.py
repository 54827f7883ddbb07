"""Converts between instances and Consul's entries, in both directions. Pure.

A service of Consul is a kind and a name of the mesh, such as ``gymmesh-agent-math``, so that
Consul's own DNS and other clients find its instances:

    PREFIX-KIND-NAME    the kind is the contract's noun (``model``, ``resource``, ``agent``), or
                        ``x`` and the full gRPC name in hexadecimal for another kind; in the name
                        each byte other than a-z, 0-9 and ``-`` is ``-xHH``, and so is a dash
                        before an ``x``: ``tool_loop`` is ``tool-x5floop``

Values without a field in Consul are in the service's meta, under keys that begin with ``gymmesh-``.
The instance's own meta is in the same map.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.entry import MAX_WEIGHT, EntryError, check_contract, check_names
from gymmesh_runtime.addresses import at_port

Instance = discovery_pb2.Instance
Health = discovery_pb2.Health

TAG: Final = "gymmesh"
_OWN: Final = "gymmesh-"
_KIND: Final = re.compile(r"gymmesh\.([a-wyz][a-z]*)\.v1\.([A-Z][a-z]*)Service")
_ESCAPE: Final = re.compile(rb"-x([0-9a-f]{2})")
_UNSAFE: Final = re.compile(rb"[^a-z0-9-]|-(?=x)")
# Consul's limits for a service's meta.
_META_KEY: Final = re.compile(r"(?!consul-|gymmesh-)[A-Za-z0-9_-]{1,128}")
_META_VALUE_BYTES: Final = 512
_META_PAIRS: Final = 64
_MAINTENANCE: Final = ("_service_maintenance:", "_node_maintenance")


def service_name(prefix: str, kind: str, name: str) -> str:
    """The name in Consul of a kind and name."""
    found = _KIND.fullmatch(kind)
    if found is not None and found[2] == found[1].capitalize():
        noun = found[1]
    else:
        noun = "x" + kind.encode().hex()
    escaped = _UNSAFE.sub(lambda one: b"-x%02x" % one[0][0], name.encode())
    return f"{prefix}-{noun}-{escaped.decode()}"


def read_service_name(prefix: str, text: str) -> tuple[str, str] | None:
    """The kind and name for a name in Consul; None if the name was not made by ``service_name``."""
    start, _, rest = text.partition("-")
    noun, dash, escaped = rest.partition("-")
    if start != prefix or not dash:
        return None
    try:
        if noun.startswith("x"):
            kind = bytes.fromhex(noun[1:]).decode()
        else:
            kind = f"gymmesh.{noun}.v1.{noun.capitalize()}Service"
        name = _ESCAPE.sub(lambda one: bytes([int(one[1], 16)]), escaped.encode()).decode()
    except ValueError:
        return None
    # Only the spelling that `service_name` gives is ours.
    return (kind, name) if service_name(prefix, kind, name) == text else None


def lease_mark(lease_id: str) -> str:
    """The public part of a lease. It identifies the lease, but does not authorise its use."""
    return hashlib.sha256(lease_id.encode()).hexdigest()[:16]


def check_id(instance_id: str, lease_id: str) -> str:
    """The id of an instance's check in Consul, which differs for each lease.

    If a restarted service registered a check under the previous id, the check would keep its
    previous status: critical.
    """
    return f"gymmesh:{instance_id}:{lease_mark(lease_id)}"


def host_and_port(address: str) -> tuple[str, int] | None:
    """An address as host and port; None for an address of another form, such as a Unix socket."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    return None if ":" in host or "/" in host else (host, int(port))


def registration(
    instance: Instance, prefix: str, lease_id: str, check: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a registration with a Consul agent. ``check`` is the check that reports the
    health.
    """
    place = host_and_port(instance.address)
    own = {
        "kind": instance.service,
        "name": instance.name,
        "contract": instance.contract_version,
        "metrics": instance.metrics_address,
        "region": instance.locality.region,
        "zone": instance.locality.zone,
        "host": instance.locality.host,
        "address": "" if place is not None else instance.address,
        "lease": lease_mark(lease_id),
    }
    meta = {f"{_OWN}{key}": value for key, value in own.items() if value}
    left_out = unfit_meta(instance.meta)
    meta |= {key: value for key, value in instance.meta.items() if key not in left_out}
    body: dict[str, Any] = {
        "ID": instance.id,
        "Name": service_name(prefix, instance.service, instance.name),
        "Tags": [TAG],
        "Meta": meta,
        "Weights": {"Passing": min(instance.weight or 1, MAX_WEIGHT), "Warning": 1},
        "Check": {"CheckID": check_id(instance.id, lease_id), "Status": "passing", **check},
    }
    if place is not None:
        body |= {"Address": place[0], "Port": place[1]}
    return body


def unfit_meta(meta: Mapping[str, str]) -> list[str]:
    """The keys of an instance's meta that Consul would reject; the registration omits them."""
    fit = [
        key
        for key, value in sorted(meta.items())
        if _META_KEY.fullmatch(key) and len(value.encode()) <= _META_VALUE_BYTES
    ]
    kept = frozenset(fit[: _META_PAIRS - 9])  # nine are ours
    return sorted(set(meta) - kept)


def read_entry(raw: Any, prefix: str) -> Instance:
    """An instance from an entry of Consul's health endpoint (`Node`, `Service`, `Checks`).

    Raises EntryError.
    """
    service = _member(raw, "Service", dict)
    instance_id, listed = _member(service, "ID", str), _member(service, "Service", str)
    found = read_service_name(prefix, listed)
    if found is None:
        raise EntryError(f"'{listed[:80]}' is not the name of a mesh service")
    meta = _texts(service.get("Meta") or {}, "Meta")
    own = {key.removeprefix(_OWN): value for key, value in meta.items() if key.startswith(_OWN)}
    instance = Instance(
        id=instance_id,
        service=found[0],
        name=found[1],
        address=own.get("address") or _address(raw, service),
        contract_version=own.get("contract", ""),
        meta={key: value for key, value in meta.items() if not key.startswith(_OWN)},
        weight=_weight(service),
        health=health_of(raw.get("Checks"), instance_id),
        metrics_address=own.get("metrics", ""),
    )
    if "region" in own or "zone" in own or "host" in own:
        instance.locality.region = own.get("region", "")
        instance.locality.zone = own.get("zone", "")
        instance.locality.host = own.get("host", "")
    if not instance.id or not instance.name:
        raise EntryError("the entry has no id or no name")
    fields = ("id", "name", "address", "contract_version", "metrics_address")
    check_names((field, getattr(instance, field)) for field in fields)
    check_contract(instance.contract_version)
    return instance


def health_of(checks: Any, instance_id: str) -> Health.ValueType:
    """An instance's health from its checks and its node's. Raises EntryError."""
    if not isinstance(checks, list):
        raise EntryError("the entry's Checks are not a list")
    health = discovery_pb2.HEALTH_SERVING
    for check in checks:
        name, status = _member(check, "CheckID", str), _member(check, "Status", str)
        if name.startswith(_MAINTENANCE) and status == "critical":
            return discovery_pb2.HEALTH_DRAINING
        if status not in ("passing", "warning"):
            health = discovery_pb2.HEALTH_NOT_SERVING
    return health


def _address(raw: Any, service: dict[str, Any]) -> str:
    # A service without an address of its own is at its node's.
    host = _member(service, "Address", str) or _member(_member(raw, "Node", dict), "Address", str)
    port = _member(service, "Port", int)
    if not host or not 0 < port <= 65_535:
        raise EntryError("the entry has no address and port")
    return at_port(host, port)


def _weight(service: dict[str, Any]) -> int:
    weights = service.get("Weights")
    weight = weights.get("Passing", 1) if isinstance(weights, dict) else 1
    if not isinstance(weight, int) or not 0 <= weight <= MAX_WEIGHT:
        raise EntryError("the entry's weight is not a number from 0 to 65535")
    return max(1, weight)


def _member(raw: Any, key: str, of: type) -> Any:
    value = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(value, of) or isinstance(value, bool):
        raise EntryError(f"the entry's {key} is missing or of a wrong type")
    if isinstance(value, str):
        _check_text(key, value)
    return value


def _texts(raw: Any, key: str) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(one, str) for one in raw.values()):
        raise EntryError(f"the entry's {key} is not a map of strings")
    for text in (*raw, *raw.values()):
        _check_text(key, text)
    return raw


def _check_text(key: str, text: str) -> None:
    """JSON can spell half of a surrogate pair, which protobuf refuses."""
    if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
        raise EntryError(f"the entry's {key} has an unpaired surrogate")
