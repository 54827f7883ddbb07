"""Which hosts, ports and addresses a sandbox may reach (`AllowedHosts`). Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_sandbox.backends.proxy.targets import ProxyTarget, RefusedError, host_form

_USUAL_PORTS: Final = (80, 443)
_BELOW: Final = "*."
# Addresses of IPv6 that stand for one of IPv4, and reach it through a translator.
_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/96")


def host_pattern(name: str) -> str:
    """The normal form of `AllowedHost.name`; empty: it is neither a host nor `*.` and a name."""
    below = name.startswith(_BELOW)
    host = host_form(name.removeprefix(_BELOW))
    if below and _address(host) is not None:
        return ""
    return f"{_BELOW}{host}" if below and host else host


def check_listed(target: ProxyTarget, hosts: Sequence[sandbox_pb2.AllowedHost]) -> bool:
    """Whether the target's address may be private. Raises RefusedError unless it is listed."""
    named = [one for one in hosts if _matches(target.host, host_pattern(one.name))]
    if not named:
        raise RefusedError(403, f"{target.host} is not a host that this sandbox may reach.")
    open_to = [one for one in named if target.port in (one.ports or _USUAL_PORTS)]
    if not open_to:
        line = f"{target.port} is not a port of {target.host} that this sandbox may reach."
        raise RefusedError(403, line)
    return any(one.private for one in open_to)


def public(address: str) -> bool:
    """Whether an address is on the public internet.

    Not public are loopback, link-local, private, multicast, unspecified and reserved addresses, and
    IPv6 addresses that stand for IPv4 addresses (mapped, 6to4, Teredo, NAT64), because this machine
    decides where the latter lead.
    """
    found = _address(address)
    if found is None or not found.is_global or found.is_multicast or found.is_reserved:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        stands_for = found.ipv4_mapped or found.sixtofour or found.teredo or found in _TRANSLATED
        return not (stands_for or found.is_site_local)
    return True


def _matches(host: str, pattern: str) -> bool:
    if pattern.startswith(_BELOW):
        below = len(host) >= len(pattern) and host.endswith(pattern[1:])
        return below and _address(host) is None
    return bool(pattern) and host == pattern


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
