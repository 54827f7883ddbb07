"""What a configuration says of security: files and names, never a secret itself."""

from __future__ import annotations

from typing import Literal

import msgspec


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS between services. All are PEM files, and are read again when they change.

    ``certificate`` (followed by intermediate ones, if any) and ``key`` are what this process shows,
    as a server and as a client; ``authority`` are the certificates that others' must lead to.
    ``client_certificates`` required: callers show a certificate of that authority. ``server_name``:
    the name that servers' certificates have, where it is not the host of their address.
    """

    certificate: str = ""
    key: str = ""
    authority: str = ""
    client_certificates: Literal["required", "none"] = "required"
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key belong together; give both, or neither")
        if not self.authority:
            raise ValueError("authority is missing: the file of the authority that others trust")


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How services and their callers know one another.

    ``token_file`` holds the bearer token that this process presents. ``insecure`` allows to listen
    without TLS where others than this machine can connect, and to send tokens there;
    ``plain_metrics`` allows the same for metrics alone.
    """

    tls: TlsConfig | None = None
    token_file: str = ""
    insecure: bool = False
    plain_metrics: bool = False
