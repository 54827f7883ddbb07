"""Where a process listens: addresses as text, and from where they can be reached."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
from typing import Final

from gymmesh_runtime.addresses.reachable import is_wildcard

_log = logging.getLogger("gymmesh.serve")

_PORTS: Final = range(20_000, 32_000)


def at_port(host: str, port: int) -> str:
    """A host and a port as one address; an IPv6 host stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def family_of(host: str) -> socket.AddressFamily:
    """The kind of socket that listens on a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_port(host: str) -> int:
    """A port of a host that is free at present.

    It is below those that systems give to outgoing connections, so that it is still free when a
    process that listens there starts, or is started again. Raises OSError: there is none.
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
    """Whether only this machine can reach what listens on a host.

    A name other than ``localhost`` may stand for any address, and so counts as reachable.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def exposure(what: str, host: str, harm: str, *, tokens: bool = False) -> str:
    """A sentence on what others can do to ``what``, which listens on ``host``; empty: nothing.

    ``tokens`` says that tokens identify callers, which travel unencrypted.
    """
    if is_local(host):
        return ""
    reach = "any address of this machine" if is_wildcard(host) else f"this machine at {host}"
    lacks = "NO ENCRYPTION" if tokens else "NO AUTHENTICATION, NO ENCRYPTION"
    return (
        f"{lacks}: {what} on {host}, and anyone who can reach {reach} over the network can {harm}"
    )


def log_exposure(what: str, host: str, harm: str, *, tokens: bool = False) -> None:
    """Logs that sentence as a warning, where there is one."""
    if sentence := exposure(what, host, harm, tokens=tokens):
        _log.warning("%s", sentence)


#: What anyone who reaches it can do to a service, metrics, and tools over MCP.
SERVICES_HARM: Final = "run rollouts, tools and models, and read tasks and answers"
METRICS_HARM: Final = "read them"
TOOLS_HARM: Final = "read what travels, the tokens of the sessions included, and call them"
