"""The configuration of discovery: where services register and find one another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from gymmesh_runtime.config import ConfigError, Secret

_Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=3600)]
_Prefix = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]{1,32}$")]
Backend = Literal["memory", "consul"]


class ConsulTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS to the agent, for an `https://` address. Files are PEM; empty: the system's CAs."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True


class ConsulConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Consul agent, and how services are registered with it.

    ``address`` is ``HOST:PORT`` or ``https://HOST:PORT``. The ACL token comes from ``token_file``
    or else from the environment variable ``token_env``; it has no key of its own. ``namespace`` is
    for Consul Enterprise. ``prefix`` begins the names of services in Consul, and separates meshes
    that share one. ``check`` auto: Consul calls the service's gRPC health where it can, and the
    service reports to Consul (ttl) where not. A service that is critical for
    ``deregister_after_s`` is deregistered by Consul, which takes no less than a minute.
    """

    address: str = "127.0.0.1:8500"
    token_file: str = ""
    token_env: str = "CONSUL_HTTP_TOKEN"
    tls: ConsulTls = msgspec.field(default_factory=ConsulTls)
    datacenter: str = ""
    namespace: str = ""
    prefix: _Prefix = "gymmesh"
    check: Literal["auto", "grpc", "ttl"] = "auto"
    check_interval_s: Annotated[float, msgspec.Meta(ge=1, le=60)] = 1.0
    deregister_after_s: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 60.0
    consistency: Literal["default", "stale", "consistent"] = "default"
    wait_s: _Seconds = 10.0

    def __post_init__(self) -> None:
        split_address(self.address)


class DiscoveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where services register: in a discovery service's memory, or in Consul.

    ``start``: `gym-cli up` starts a development agent from ``binary`` where no Consul answers.
    ``xds``: the discovery service's gRPC server is an xDS control plane, too. ``http_sd``: the host
    and port at which Prometheus finds what to scrape; empty: none.
    """

    backend: Backend = "memory"
    start: bool = False
    binary: str = "consul"
    consul: ConsulConfig = msgspec.field(default_factory=ConsulConfig)
    xds: bool = False
    http_sd: str = ""


def split_address(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of an agent's address. Raises ValueError."""
    scheme, _, rest = address.rpartition("://")
    scheme = scheme or "http"
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    whole = host and parts.netloc == rest and "@" not in rest
    if scheme not in ("http", "https") or not host or not port or not whole:
        # The text itself may hold a credential.
        raise ValueError("the Consul address must be HOST:PORT or https://HOST:PORT")
    return scheme, host, port


def read_token(config: ConsulConfig, env: Mapping[str, str] = os.environ) -> Secret | None:
    """The ACL token, None where there is none. Raises ConfigError for a file without one."""
    if config.token_file:
        try:
            text = Path(config.token_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or "is not UTF-8 text"
            raise ConfigError(
                f"the Consul token file '{config.token_file}' cannot be read: {problem}"
            ) from None
        if not text or not text.isprintable() or " " in text:
            raise ConfigError(f"the Consul token file '{config.token_file}' holds no token")
        return Secret(text)
    text = env.get(config.token_env, "").strip() if config.token_env else ""
    return Secret(text) if text else None
