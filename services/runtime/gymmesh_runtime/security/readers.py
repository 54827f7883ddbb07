"""Access to the HTTP pages that Prometheus reads: metrics, and the list of scrape targets.

The rules are those of calls with the permission `observe`, which every identity has. If services
use TLS, the pages use TLS with the same certificate, and readers need a client certificate if
callers do. If identities are configured, a reader must be one of them, by its certificate or by a
bearer token. With `plain_metrics` there is no TLS, and everyone who can connect may read.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.audit import denied
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.identity import Identities, Identity
from gymmesh_runtime.security.pem import Pem, PemFiles, load_pair
from gymmesh_runtime.security.permissions import refusal_of
from gymmesh_runtime.security.tokens import presented

#: The standard library's words for the names in a certificate, and gRPC's, which identities have.
_ALTERNATIVES: Final = {"URI": "peer_uri", "DNS": "peer_dns"}
_COMMON_NAME: Final = "commonName"
#: The pages are no methods; this one takes `observe`, too.
_LIKE: Final = "gymmesh.discovery.v1.DiscoveryService/ListInstances"


class Readers:
    """Decides which requests may read the pages of one process. Threads may use it.

    ``tls`` wraps the HTTP server's connections; None: no TLS. It uses changed certificates
    automatically. Raises ConfigError for services with TLS and no certificate.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        credentials = credentials or Credentials()
        config = credentials.config
        files = None if config.plain_metrics else credentials.files_to_serve_with()
        self.tls = None if files is None else _server_context(files)
        named = config.identities and not config.plain_metrics
        self._identities = Identities(config.identities) if named else None

    @property
    def scheme(self) -> str:
        """The scheme of the pages' URLs."""
        return "http" if self.tls is None else "https"

    def refusal(
        self, what: str, authorization: str, certificate: Mapping[str, Any] | None
    ) -> MeshError | None:
        """The error for a request that may not read, or None. The error is also written to the
        audit log.

        ``what`` names the page in that log. ``authorization`` is the header's value.
        ``certificate`` is the reader's certificate, as `ssl.SSLSocket.getpeercert` returns it.
        """
        if self._identities is None:
            return None
        refused = refusal_of(self._identity(authorization, certificate), _LIKE)
        if refused is not None:
            denied("", what, refused)
        return refused

    def _identity(
        self, authorization: str, certificate: Mapping[str, Any] | None
    ) -> Identity | None:
        assert self._identities is not None
        if authorization:
            return self._identities.of_token(presented(authorization))
        return self._identities.of_certificate(_names_in(certificate or {}))


def _names_in(certificate: Mapping[str, Any]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in _ALTERNATIVES:
            found.setdefault(_ALTERNATIVES[kind], []).append(name.encode())
    for parts in certificate.get("subject", ()):
        for kind, name in parts:
            if kind == _COMMON_NAME:
                found.setdefault("x509_common_name", []).append(name.encode())
    return found


def _server_context(files: PemFiles) -> ssl.SSLContext:
    """A context of which each connection gets the certificates as they are at its handshake."""
    used = files.current()
    newest = _loaded(files, used)

    def choose(connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        nonlocal used, newest
        pem = files.current()
        if pem is not used:
            try:
                newest = _loaded(files, pem)
            except (OSError, ssl.SSLError):
                pass  # they are being replaced again: the next connection is another try
            else:
                used = pem
        connection.context = newest

    context = _loaded(files, used)
    context.sni_callback = choose  # called for each handshake, also where no name was sent
    return context


def _loaded(files: PemFiles, pem: Pem) -> ssl.SSLContext:
    tls = files.config
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A session that is resumed is not checked again, against a new authority for example. Those of
    # TLS 1.2 cannot be turned off here.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    load_pair(context, tls)
    context.load_verify_locations(cadata=pem.authority.decode("ascii"))
    if tls.client_certificates == "required":
        context.verify_mode = ssl.CERT_REQUIRED
    return context
