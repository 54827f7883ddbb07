"""Where a server may listen without TLS: only at addresses that no other machine can reach."""

from __future__ import annotations

from gymmesh_runtime.addresses import is_local
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security.config import SecurityConfig


def check_exposure(host: str, security: SecurityConfig | None) -> None:
    """Raises ConfigError for a listener without TLS that others could reach and that nobody
    allowed.
    """
    security = security or SecurityConfig()
    if is_local(host) or security.insecure or security.tls is not None:
        return
    raise ConfigError(
        f"this process will not listen on {host} without TLS, because others could read and call "
        "everything. Set security.tls (see docs/how-to/security.md), or allow listening without "
        "TLS with --insecure (security.insecure: true)"
    )


def check_plain(host: str, security: SecurityConfig | None, what: str) -> None:
    """Raises ConfigError for an HTTP page that others could read without TLS and that nobody
    allowed.
    """
    security = security or SecurityConfig()
    if is_local(host) or security.insecure or security.plain_metrics or security.tls is not None:
        return
    raise ConfigError(
        f"this process will not serve {what} on {host} over plain HTTP, because others could read "
        f"{what}. Set security.tls (see docs/how-to/security.md), or allow plain HTTP with "
        "security.plain_metrics: true"
    )
