"""Recognises the caller: by a name in its certificate, or by a bearer token."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gymmesh_runtime.security.config import IdentityConfig, Permission
from gymmesh_runtime.security.tokens import TokenFile

#: gRPC's names for the names in a certificate that an identity is known by. Others, such as IP
#: addresses, say where somebody is and not who.
_NAMES: Final = ("peer_uri", "peer_dns", "x509_common_name")
_NO_DIGEST: Final = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """A known caller."""

    name: str
    may: frozenset[Permission]


class Identities:
    """The identities of a configuration. Raises ConfigError for a token file without a token."""

    def __init__(self, configs: Mapping[str, IdentityConfig]) -> None:
        self._by_name: dict[str, Identity] = {}
        self._tokens: list[tuple[Identity, str, TokenFile | None]] = []
        for name, config in configs.items():
            identity = Identity(name, frozenset((*config.may, "observe")))
            self._by_name |= dict.fromkeys(config.certificates, identity)
            if config.token_sha256:
                self._tokens.append((identity, config.token_sha256.lower(), None))
            if config.token_file:
                key = f"security.identities.{name}.token_file"
                self._tokens.append((identity, _NO_DIGEST, TokenFile(config.token_file, key)))

    def of_certificate(self, shown: Mapping[str, Iterable[bytes]]) -> Identity | None:
        """The identity of a verified certificate, in gRPC's form."""
        for key in _NAMES:
            for name in shown.get(key, ()):
                found = self._by_name.get(name.decode("utf-8", "replace"))
                if found is not None:
                    return found
        return None

    def of_token(self, token: str) -> Identity | None:
        """The identity of a token. The token is compared with all tokens, each in constant time."""
        digest = _digest(token)
        found: Identity | None = None
        for identity, known, file in self._tokens:
            if hmac.compare_digest(digest, known if file is None else _digest(file.current())):
                found = identity
        return found


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
