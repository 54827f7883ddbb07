"""Why a connection over TLS failed, as one sentence that names the cause and the fix.

gRPC's own errors don't say why: a server that refuses a client's certificate closes the connection
and sends no reason. So after a failure, this module makes a TLS handshake of its own to find the
cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from pathlib import Path
from time import monotonic
from typing import Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.config import TlsConfig
from gymmesh_runtime.security.pem import EXPIRED, NOT_YET, check_pair, load_pair

_TIMEOUT_S: Final = 2.0
_KNOWN_S: Final = 1.0
_MOST: Final = 10_000
_OF_TLS: Final = re.compile(r"socket closed|handshake|verif|certificate|ssl|reset", re.IGNORECASE)
# OpenSSL's codes of a certificate that is not for the host, or not for the IP address.
_NAMES: Final = (62, 64)


def may_be_tls(detail: str) -> bool:
    """Whether gRPC's text of a failure may be about TLS."""
    return _OF_TLS.search(detail) is not None


class Refusals:
    """Finds why connections failed, at most once a second for each address.

    ``tls``: the TLS configuration with which this process connects; None: plain.
    """

    def __init__(self, tls: TlsConfig | None) -> None:
        self._tls = tls
        self._found: dict[str, tuple[float, asyncio.Task[str]]] = {}

    async def find(self, address: str) -> MeshError | None:
        """The error if TLS, or its absence, is the cause; None: another cause, or unknown.

        An address that is not a host and port, such as an xds target, is not tried.
        """
        since, task = self._found.get(address, (0.0, None))
        if task is None or monotonic() - since > _KNOWN_S:
            if len(self._found) >= _MOST:
                self._found.clear()
            task = asyncio.create_task(_find(address, self._tls))
            self._found[address] = (monotonic(), task)
        said = await asyncio.shield(task)
        if not said:
            return None
        return MeshError(
            errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
            f"{address} {said}",
            metadata={"address": address},
        )


async def _find(address: str, tls: TlsConfig | None) -> str:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or "/" in host:
        return ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * _TIMEOUT_S):
            return await asyncio.to_thread(_said, host, int(port), tls)
    return ""


def _said(host: str, port: int, tls: TlsConfig | None) -> str:
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            first = _of_plain(connection) if tls is None else _of_tls(connection, host, tls)
        if tls is None or not first:
            return first
        # One that is being stopped may hang up, too, but not twice in the same way.
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            return first if first == _of_tls(connection, host, tls) else ""
    except OSError:
        return ""  # nobody answers there: no matter of TLS


def _of_plain(connection: socket.socket) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: it is only seen whether it speaks TLS
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection):
            return (
                "serves TLS. Pass the authority of the server's certificate with --ca "
                "(security.tls)"
            )
    except OSError:
        return ""


def _of_tls(connection: socket.socket, host: str, tls: TlsConfig) -> str:
    """Raises OSError where it is no matter of TLS, as of a server that hangs up first."""
    name = tls.server_name or host
    try:
        stream = _context(tls).wrap_socket(connection, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return _of_theirs(error.verify_code, name, tls)
    except ssl.SSLEOFError:
        return ""
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return (
                "does not serve TLS. Start that service with security.tls, or connect without TLS"
            )
        return _of_ours(tls) if "ALERT" in (error.reason or "") else ""
    with stream:
        stream.settimeout(_TIMEOUT_S)
        try:
            # A gRPC server speaks first, unless it refuses our certificate, and then it hangs up.
            return "" if stream.recv(1) else _of_ours(tls)
        except TimeoutError:
            return ""
        except (ssl.SSLError, ConnectionResetError):
            return _of_ours(tls)


def _context(tls: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(Path(tls.authority).expanduser()))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC takes authorities
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if tls.certificate:
        load_pair(context, tls)
    return context


def _of_theirs(code: int, name: str, tls: TlsConfig) -> str:
    """What is wrong with the server's certificate."""
    if code == EXPIRED:
        return "presents a certificate that has expired; issue a new certificate for that service"
    if code == NOT_YET:
        return "presents a certificate that is not valid yet. Check the clocks of both machines"
    if code in _NAMES:
        return (
            f"presents a certificate that is not for {name}. Connect with a name that the "
            "certificate contains, or pass such a name with --server-name "
            "(security.tls.server_name)"
        )
    return (
        f"presents a certificate that the authority in {tls.authority} did not issue. Pass the "
        "authority that issued this certificate with --ca (security.tls.authority)"
    )


def _of_ours(tls: TlsConfig) -> str:
    """Why a server refuses our certificate."""
    if not tls.certificate:
        return (
            "requires a client certificate. Pass --cert and --key (security.tls.certificate and "
            "key)"
        )
    try:
        check_pair(tls)
    except ConfigError as error:
        return f"rejects our certificate: {error.problem}"
    return (
        f"rejects our certificate {tls.certificate}, because the server does not trust the issuing "
        "authority. Use a certificate that the mesh's authority issued"
    )
