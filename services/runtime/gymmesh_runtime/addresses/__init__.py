"""Where a process listens, who can reach that address, and the host that others connect to."""

from __future__ import annotations

import ipaddress
import logging
import re
import secrets
import socket
from collections.abc import Sequence
from typing import Final

import ifaddr

from gymmesh_runtime.config import ConfigError

__all__ = [
    "METRICS_HARM",
    "SERVICES_HARM",
    "TOOLS_HARM",
    "advertised",
    "at_port",
    "exposure",
    "family_of",
    "free_port",
    "is_local",
    "is_wildcard",
    "log_exposure",
]

_log = logging.getLogger("gymmesh.serve")

#: What anyone who reaches it can do to a service, metrics, and tools over MCP.
SERVICES_HARM: Final = "run rollouts, tools and models, and read tasks and answers"
METRICS_HARM: Final = "read the metrics"
TOOLS_HARM: Final = "read the traffic, including the tokens of sessions, and make calls"

_PORTS: Final = range(20_000, 32_000)
_KEY: Final = "mesh.advertise_host"
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def at_port(host: str, port: int) -> str:
    """A host and a port as one address, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def family_of(host: str) -> socket.AddressFamily:
    """The kind of socket that listens on a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_port(host: str) -> int:
    """A port of a host that is free now.

    The port is below those that systems use for outgoing connections. So it is still free when a
    process starts or restarts to listen on it. Raises OSError if there is no such port.
    """
    for _ in range(100):
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with socket.socket(family_of(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                cause = error
                continue
            return port
    raise cause


def is_local(host: str) -> bool:
    """Whether only this machine can reach a host's ports.

    A name other than ``localhost`` may have any address, so it is treated as reachable by others.
    """
    ip = _ip(host.strip("[]"))
    return host == "localhost" if ip is None else ip.is_loopback


def exposure(what: str, host: str, harm: str, *, tokens: bool = False) -> str:
    """A sentence that says what others can do to ``what``, which listens on ``host``; empty if only
    this machine can connect.

    ``tokens``: whether tokens identify callers. The tokens then travel unencrypted.
    """
    if is_local(host):
        return ""
    reach = "any address of this machine" if is_wildcard(host) else f"this machine at {host}"
    lacks = "NO ENCRYPTION" if tokens else "NO AUTHENTICATION, NO ENCRYPTION"
    return (
        f"{lacks}: {what} on {host}, and anyone who can reach {reach} over the network can {harm}"
    )


def log_exposure(what: str, host: str, harm: str, *, tokens: bool = False) -> None:
    """Logs the sentence of ``exposure`` as a warning, unless it is empty."""
    if sentence := exposure(what, host, harm, tokens=tokens):
        _log.warning("%s", sentence)


def advertised(
    host: str, advertise_host: str = "", *, addresses: Sequence[str] | None = None
) -> str:
    """The host that others connect to, for services that listen on ``host``.

    This is ``advertise_host`` if it is set, otherwise ``host``. If ``host`` means all addresses of
    this machine, it is the address that other machines can reach: an IPv4 address for `0.0.0.0`; an
    IPv6 address for `::`, or an IPv4 address if there is no IPv6 address. ``addresses``: this
    machine's addresses; None: look them up.

    Raises ConfigError if there are several such addresses or none, or if ``advertise_host`` is not
    a single host.
    """
    if advertise_host:
        if not _is_one_host(advertise_host):
            raise ConfigError(
                f"other machines can't connect to the host '{advertise_host}'. Set one address or "
                "name without a port (--advertise HOST)",
                path=_KEY,
            )
        return advertise_host
    if not is_wildcard(host):
        return host
    found = _reachable(own_addresses() if addresses is None else addresses, six=":" in host)
    if len(found) == 1:
        return found[0]
    several = f"several addresses: {', '.join(found)}"
    which = several if found else "no address that other machines can reach"
    raise ConfigError(
        f"the services listen on {host}, which means all addresses of this machine. "
        f"Other machines need one address to connect to, but this machine has {which}. Choose an "
        f"address with --advertise HOST, or set {_KEY}",
        path=_KEY,
    )


def is_wildcard(host: str) -> bool:
    """Whether a host stands for all addresses of the machine."""
    ip = _ip(host)
    return ip is not None and ip.is_unspecified


def own_addresses() -> list[str]:
    """The IP addresses of this machine's interfaces, including loopback."""
    found = [one.ip for adapter in ifaddr.get_adapters() for one in adapter.ips]
    # An IPv6 address comes with its flow and scope.
    return [ip if isinstance(ip, str) else ip[0] for ip in found]


def _reachable(addresses: Sequence[str], *, six: bool) -> list[str]:
    """Those that other machines can reach, of one version, each once."""
    usable: dict[int, list[str]] = {4: [], 6: []}
    for text in dict.fromkeys(addresses):
        address = ipaddress.ip_address(text)
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            usable[address.version].append(text)
    return usable[6] or usable[4] if six else usable[4]


def _is_one_host(text: str) -> bool:
    ip = _ip(text)
    return _NAME.fullmatch(text) is not None if ip is None else not ip.is_unspecified


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
