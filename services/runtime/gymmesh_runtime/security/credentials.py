"""Certificates and tokens in gRPC's form, for servers and channels."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.addresses import is_local
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security.config import SecurityConfig
from gymmesh_runtime.security.pem import CHECK_S, Pem, PemFiles
from gymmesh_runtime.security.refusals import Refusals, may_be_tls
from gymmesh_runtime.security.tokens import AUTHORIZATION, TokenFile, bearer

_Metadata = tuple[tuple[str, str], ...]
#: gRPC's name for the name that a server's certificate must have, in place of the address's host.
_SERVER_NAME: Final = "grpc.ssl_target_name_override"


class Credentials:
    """The certificates and the token of one process, from its configuration.

    Without certificates all connections are plain. Raises ConfigError for files that cannot be
    used.
    """

    def __init__(self, config: SecurityConfig | None = None) -> None:
        self.config = config = config or SecurityConfig()
        #: The certificate files, where there is TLS.
        self.files = None if config.tls is None else PemFiles(config.tls)
        self._token = TokenFile(config.token_file) if config.token_file else None
        self._refusals = Refusals(config.tls)

    @property
    def encrypts(self) -> bool:
        return self.config.tls is not None

    def refresh(self) -> int:
        """Loads changed certificate files; returns a number that grows with each change."""
        return 0 if self.files is None else self.files.refresh()

    async def refresh_for_ever(self) -> None:
        """Loads changed files every second, even if nobody connects, so that log and metrics are
        current.
        """
        while self.encrypts:
            await asyncio.sleep(CHECK_S)
            await asyncio.to_thread(self.refresh)

    def files_to_serve_with(self) -> PemFiles | None:
        """The files of this process as a server; None: plain. Raises ConfigError if a certificate
        is missing.
        """
        if self.files is not None and not self.files.config.certificate:
            raise ConfigError(
                "a service needs a certificate and a key to serve TLS", path="security.tls"
            )
        return self.files

    def server(self) -> grpc.ServerCredentials | None:
        """gRPC's credentials for a server; None: plain. Raises ConfigError if a certificate is
        missing.

        Each new connection checks the files. So a changed certificate is used from the next
        connection on.
        """
        files = self.files_to_serve_with()
        if files is None:
            return None
        used = files.current()

        def changed() -> Any:
            nonlocal used
            if (pem := files.current()) is used:
                return None
            used = pem
            return _server_configuration(pem)

        required = files.config.client_certificates == "required"
        make: Any = grpc.dynamic_ssl_server_credentials  # its stub lacks the None of "no change"
        credentials: grpc.ServerCredentials = make(_server_configuration(used), changed, required)
        return credentials

    def open_channel(self, address: str, options: list[tuple[str, int | str]]) -> grpc.aio.Channel:
        """A channel to a gRPC target, with the current certificates."""
        files = self.files
        if files is None:
            return grpc.aio.insecure_channel(address, options=options)
        pem = files.current()
        credentials = grpc.ssl_channel_credentials(
            pem.authority, pem.key or None, pem.certificate or None
        )
        if files.config.server_name:
            options = [*options, (_SERVER_NAME, files.config.server_name)]
        return grpc.aio.secure_channel(address, credentials, options=options)

    async def refusal(self, address: str, detail: str) -> MeshError | None:
        """The error of a failure to connect that TLS caused; None: TLS is not the cause, or the
        cause is unknown.

        ``detail``: gRPC's text of the failure.
        """
        if not self.encrypts or not may_be_tls(detail):
            return None
        return await self._refusals.find(address)

    async def explained(self, error: MeshError, address: str) -> MeshError:
        """The error of a first call to an address, or a better one if the server requires TLS: such
        a server hangs up on callers without TLS and sends no reason.
        """
        if self.encrypts or error.reason != errors_pb2.ERROR_REASON_PEER_UNAVAILABLE:
            return error
        return await self._refusals.find(address) or error

    def metadata(self, address: str) -> _Metadata:
        """The metadata that each RPC to an address carries in addition to its own: the token.

        Raises CREDENTIAL_INVALID if others could read the token on the way.
        """
        if self._token is None:
            return ()
        host = address.rpartition(":")[0] or address  # what is no host and port, as a whole
        if not (self.encrypts or self.config.insecure or is_local(host)):
            raise MeshError(
                errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
                f"the token is not sent to {address} without TLS, because others could read the "
                "token. Set security.tls, or allow sending with security.insecure: true",
            )
        return ((AUTHORIZATION, bearer(self._token.current())),)


def _server_configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.authority)
