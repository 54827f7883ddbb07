"""The configuration of discovery."""

from __future__ import annotations

import msgspec


class DiscoveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the registry can be read besides DiscoveryService.

    ``xds``: its gRPC server is an xDS control plane, too. ``http_sd``: the host and port at which
    Prometheus finds what to scrape; empty: none.
    """

    xds: bool = False
    http_sd: str = ""
