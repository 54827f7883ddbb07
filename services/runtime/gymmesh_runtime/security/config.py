"""The section `security` of a configuration. It has names of files, never a secret."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

#: What callers may do: run rollouts and take them; steer runs and weights; register services; call
#: models, environments and verifiers, as agents do; look at what there is; have right answers.
Permission: TypeAlias = Literal["collect", "control", "register", "serve", "observe", "audit"]

_MIB: Final = 1024 * 1024
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS between services. All files are PEM, and are read again when they change.

    ``certificate`` (followed by intermediate certificates, if any) and ``key`` are the certificate
    that this process shows, as a server and as a client. ``authority`` has the authorities that
    must have issued the certificates of others. ``client_certificates`` required: callers must show
    a certificate of these authorities. ``server_name``: the name in servers' certificates, if it is
    not the host of their address.
    """

    certificate: str = ""
    key: str = ""
    authority: str = ""
    client_certificates: Literal["required", "none"] = "required"
    server_name: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("set both 'certificate' and 'key', or remove both")
        if not self.authority:
            raise ValueError(
                "'authority' is missing. Set 'authority' to the PEM file of the authority that "
                "issued the other services' certificates"
            )


class IdentityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server recognises a caller, and what the caller may do.

    A caller is recognised by a name in its certificate (a URI such as a SPIFFE id, a DNS name, or
    the common name), or by a bearer token: the file with the token, or its SHA-256 in hexadecimal
    digits. Every identity may ``observe``. ``registers``: the kinds of service, as the contract's
    nouns, that an identity with the permission ``register`` may register; empty: all kinds.
    """

    certificates: tuple[str, ...] = ()
    token_file: str = ""
    token_sha256: str = ""
    may: tuple[Permission, ...] = ()
    registers: tuple[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], ...] = ()

    def __post_init__(self) -> None:
        if not (self.certificates or self.token_file or self.token_sha256):
            raise ValueError("an identity needs 'certificates', 'token_file' or 'token_sha256'")
        if self.token_sha256 and not _SHA256.fullmatch(self.token_sha256):
            raise ValueError(
                "'token_sha256' must be the SHA-256 of the token, as 64 hexadecimal digits"
            )
        if not self.may:
            raise ValueError("'may' is missing or empty; add at least the permission 'observe'")
        if self.registers and "register" not in self.may:
            raise ValueError(
                "the key 'registers' needs the permission 'register'; add 'register' to 'may'"
            )


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of each identity in one process; 0: no limit.

    ``calls``: calls in flight, including calls on the mux and streams. ``calls_per_s``: calls per
    second; a second's worth may arrive at once. ``streams``: calls with streams, and connections of
    the mux. ``message_bytes``: the largest message that any caller may send. Callers without an
    identity share one limit.
    """

    calls: _Count = 0
    calls_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    streams: _Count = 0
    message_bytes: Annotated[int, msgspec.Meta(ge=_MIB, le=64 * _MIB)] = 64 * _MIB

    @property
    def any(self) -> bool:
        """Whether any limit is set for calls or streams."""
        return bool(self.calls or self.calls_per_s or self.streams)


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How services and their callers recognise one another.

    ``token_file``: the file with the bearer token that this process presents. ``identities``, by
    name: the only callers that may call; without identities, all callers that can connect may do
    everything. ``insecure``: allows listening without TLS where other machines can connect, and
    sending tokens to such places. ``plain_metrics``: metrics need neither TLS nor an identity.
    ``reflection``: whether servers offer gRPC reflection; by default only servers with neither TLS
    nor identities offer it.
    """

    tls: TlsConfig | None = None
    token_file: str = ""
    identities: dict[str, IdentityConfig] = {}
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    insecure: bool = False
    plain_metrics: bool = False
    reflection: bool | None = None

    def __post_init__(self) -> None:
        owners: dict[str, str] = {}
        for name, one in self.identities.items():
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"the identity's name {name!r} must consist of letters, digits, '.', '_' "
                    "and '-'"
                )
            for key in (*one.certificates, one.token_sha256.lower()):
                if key and owners.setdefault(key, name) != name:
                    raise ValueError(
                        f"identities {owners[key]!r} and {name!r} are both identified by {key}; "
                        "remove that name or token from one of the identities"
                    )
            certain = self.tls is not None and self.tls.client_certificates == "required"
            if one.certificates and not certain:
                raise ValueError(
                    f"identity {name!r} is identified by certificates, but callers need not "
                    "present a certificate. Set security.tls with client_certificates: required"
                )

    @property
    def encrypts_metrics(self) -> bool:
        return self.tls is not None and not self.plain_metrics

    @property
    def offers_reflection(self) -> bool:
        if self.reflection is not None:
            return self.reflection
        return self.tls is None and not self.identities
