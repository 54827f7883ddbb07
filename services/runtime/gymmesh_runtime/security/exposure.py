"""Where a server may listen without TLS: where this machine alone can connect."""

from __future__ import annotations

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.listening import is_local
from gymmesh_runtime.security.config import SecurityConfig


def check_exposure(host: str, security: SecurityConfig | None, *, metrics: bool = False) -> None:
    """Raises ConfigError for a plain listener that others could reach and nobody asked for.

    ``metrics``: whether there is a metrics endpoint, too.
    """
    security = security or SecurityConfig()
    if is_local(host) or security.insecure:
        return
    if security.tls is None:
        raise ConfigError(
            f"will not listen on {host} without TLS, where others could read and call all; give "
            "security.tls (see docs/security.md), or --insecure (security.insecure: true)"
        )
    if metrics:
        check_plain(host, security, "metrics", "; or turn them off with mesh.metrics: false")


def check_plain(host: str, security: SecurityConfig | None, what: str, else_: str = "") -> None:
    """Raises ConfigError for plain HTTP that others could reach and nobody asked for."""
    security = security or SecurityConfig()
    if not (is_local(host) or security.insecure or security.plain_metrics):
        raise ConfigError(
            f"will not serve {what} on {host} over plain HTTP, where others could read it; allow "
            f"it with security.plain_metrics: true{else_}"
        )
