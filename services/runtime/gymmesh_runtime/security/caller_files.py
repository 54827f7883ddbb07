"""The certificate and token that a caller shows to remote services, from command line flags."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security.config import SecurityConfig, TlsConfig


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """--ca, --cert, --key, --server-name and --token-file; None: the flag is not set."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    token_file: str | None = None

    def over(self, configured: SecurityConfig | None = None) -> SecurityConfig | None:
        """The configured security, overridden by the flags.

        Raises ConfigError for settings that contradict each other.
        """
        said = {
            "authority": self.ca,
            "certificate": self.cert,
            "key": self.key,
            "server_name": self.server_name,
        }
        of_tls = {key: value for key, value in said.items() if value is not None}
        if not of_tls and self.token_file is None:
            return configured
        config = configured or SecurityConfig()
        if of_tls:
            before = {} if config.tls is None else msgspec.structs.asdict(config.tls)
            if not (before or self.ca):
                raise ConfigError(
                    "the authority of the services' certificates is missing; add --ca FILE"
                )
            try:
                config = msgspec.structs.replace(config, tls=TlsConfig(**(before | of_tls)))
            except ValueError:
                raise ConfigError("--cert needs --key, and --key needs --cert; set both") from None
        if self.token_file is not None:
            config = msgspec.structs.replace(config, token_file=self.token_file)
        return config
