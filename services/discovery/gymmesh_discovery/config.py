"""The configuration of discovery: where services register and find one another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from gymmesh_runtime.config import Secret, read_token_file
from gymmesh_runtime.kubernetes import check_server

_Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=3600)]
_Prefix = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]{1,32}$")]
BackendName = Literal["memory", "consul", "kubernetes"]


class ConsulTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS to the Consul agent, for an `https://` address. Files are PEM. Without ``ca_file``, the
    system's CAs are used.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True


class ConsulConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Consul agent, and how services register with it.

    ``address`` is ``HOST:PORT`` or ``https://HOST:PORT``. The ACL token is in ``token_file``, or
    else in the environment variable that ``token_env`` names. ``namespace`` is for Consul
    Enterprise. ``prefix`` begins the names of services in Consul, and separates meshes that share a
    Consul. With ``check`` auto, Consul calls the service's gRPC health if it can. Otherwise the
    service reports its health to Consul (ttl). Consul deregisters a service that is critical for
    ``deregister_after_s``, at least a minute.
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


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kubernetes namespace, and which of its EndpointSlices are services of the mesh.

    The API server and its credentials come from the first of these that is set: ``server``
    (``https://HOST:PORT``, or ``http://`` for a `kubectl proxy`) with ``token_file`` and
    ``ca_file``; ``kubeconfig`` with its ``context``; in a pod, the pod's service account; the usual
    kubeconfig. If ``namespace`` is empty, it is the pod's or the context's namespace. ``selector``
    is a label selector. ``port`` and ``metrics_port`` are names of ports of the Services.
    """

    namespace: Annotated[str, msgspec.Meta(pattern="^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    selector: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)] = "gymmesh.io/service"
    port: str = "grpc"
    metrics_port: str = "metrics"
    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    kubeconfig: str = ""
    context: str = ""
    wait_s: Annotated[float, msgspec.Meta(ge=2, le=3600)] = 30.0

    def __post_init__(self) -> None:
        if self.server:
            check_server(self.server)
        elif self.token_file or self.ca_file:
            raise ValueError("'token_file' and 'ca_file' need the key 'server'; set 'server', too")
        if self.server and (self.kubeconfig or self.context):
            raise ValueError(
                "'server' is not allowed together with 'kubeconfig' or 'context'. Remove 'server', "
                "or remove 'kubeconfig' and 'context'"
            )
        if self.token_file and not self.server.startswith("https://"):
            raise ValueError(
                "a token is only sent over https://. Set 'server' to an https:// address, or "
                "remove 'token_file'"
            )


class DiscoveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where services register: in a discovery service's memory, or in Consul.

    With ``kubernetes``, services also register in a discovery service's memory, and the services
    that Kubernetes lists are added.

    ``start``: if no Consul answers, `gym-cli up` starts a development agent from ``binary``.
    ``xds``: the discovery service's gRPC server is also an xDS control plane. ``http_sd``: the host
    and port that serve the list of scrape targets for Prometheus; empty: no list.
    """

    backend: BackendName = "memory"
    start: bool = False
    binary: str = "consul"
    consul: ConsulConfig = msgspec.field(default_factory=ConsulConfig)
    kubernetes: KubernetesConfig = msgspec.field(default_factory=KubernetesConfig)
    xds: bool = False
    http_sd: str = ""


def split_address(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of a Consul agent's address. Raises ValueError."""
    scheme, _, rest = address.rpartition("://")
    scheme = scheme or "http"
    found = split_host_port(rest)
    if scheme not in ("http", "https") or found is None or not found[1]:
        # The text itself may hold a credential.
        raise ValueError("the Consul address must be HOST:PORT or https://HOST:PORT")
    return scheme, *found


def split_host_port(text: str) -> tuple[str, int] | None:
    """The host and the port of HOST:PORT; None for any other text."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or port is None or parts.netloc != text or "@" in text:
        return None
    return host, port


def read_token(config: ConsulConfig, env: Mapping[str, str] = os.environ) -> Secret | None:
    """The ACL token; None if there is none. Raises ConfigError for a file without a token."""
    if config.token_file:
        return read_token_file(Path(config.token_file), "Consul token file")
    text = env.get(config.token_env, "").strip() if config.token_env else ""
    return Secret(text) if text else None
