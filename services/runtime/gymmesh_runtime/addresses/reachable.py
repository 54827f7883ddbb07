"""The host that a service tells others to connect to: in the registry, and to people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import ifaddr

from gymmesh_runtime.config.errors import ConfigError

_KEY: Final = "mesh.advertise_host"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def advertised(
    host: str, advertise_host: str = "", *, addresses: Sequence[str] | None = None
) -> str:
    """The host that others connect to, of services that listen on ``host``.

    ``advertise_host``, where it is set. Otherwise ``host``; but where that stands for all
    addresses of this machine, the one of them that other machines can reach: an IPv4 address for
    `0.0.0.0`, an IPv6 address for `::`, or an IPv4 address where there is none. ``addresses``:
    this machine's; None: they are looked up.

    Raises ConfigError where that is several addresses or none, and for an ``advertise_host`` that
    is no single host.
    """
    if advertise_host:
        if not _is_one_host(advertise_host):
            raise ConfigError(
                f"'{advertise_host}' is no host that others can connect to; give one address or "
                "name, without a port (--advertise HOST)",
                path=_KEY,
            )
        return advertise_host
    if not is_wildcard(host):
        return host
    found = _reachable(own_addresses() if addresses is None else addresses, six=":" in host)
    if len(found) == 1:
        return found[0]
    which = f"several: {', '.join(found)}" if found else "none that other machines can reach"
    raise ConfigError(
        f"the services listen on {host}, all addresses of this machine, of which it has {which}; "
        "say which host others connect to, with --advertise HOST or this key",
        path=_KEY,
    )


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def own_addresses() -> list[str]:
    """The IP addresses of this machine's interfaces, loopback included."""
    found = [one.ip for adapter in ifaddr.get_adapters() for one in adapter.ips]
    # An IPv6 address comes with its flow and scope.
    return [ip if isinstance(ip, str) else ip[0] for ip in found]


def _reachable(addresses: Sequence[str], *, six: bool) -> list[str]:
    """Those that other machines can reach, of one version, each once."""
    usable: dict[int, list[str]] = {4: [], 6: []}
    for text in dict.fromkeys(addresses):
        address = ip_address(text)
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            usable[address.version].append(text)
    return usable[6] or usable[4] if six else usable[4]


def _is_one_host(text: str) -> bool:
    try:
        return not ip_address(text).is_unspecified
    except ValueError:
        return _NAME.fullmatch(text) is not None
