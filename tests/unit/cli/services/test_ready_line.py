"""The options that `gym-cli up` names for a collector."""

from __future__ import annotations

from typing import Literal

import pytest

from gymmesh_cli.services.up import _shown
from gymmesh_mesh import MeshConfig
from gymmesh_runtime.security import IdentityConfig, SecurityConfig, TlsConfig

_SERVICES = IdentityConfig(token_sha256="5" * 64, may=("register", "serve"))
_BY_TOKEN = IdentityConfig(token_file="token", may=("collect",))
_BY_DIGEST = IdentityConfig(token_sha256="6" * 64, may=("collect",))
_BY_CERTIFICATE = IdentityConfig(certificates=("collector",), may=("collect",))


@pytest.mark.parametrize(
    ("certificates", "collectors", "options"),
    [
        (None, [], ""),
        (None, [_BY_TOKEN], " --token-file FILE"),
        ("none", [], " --ca ca.pem"),
        ("none", [_BY_DIGEST], " --ca ca.pem --token-file FILE"),
        ("required", [_BY_TOKEN], " --ca ca.pem --cert FILE --key FILE --token-file FILE"),
        ("required", [_BY_CERTIFICATE], " --ca ca.pem --cert FILE --key FILE"),
        (
            "required",
            [_BY_CERTIFICATE, _BY_TOKEN],
            " --ca ca.pem --cert FILE --key FILE [--token-file FILE]",
        ),
    ],
)
def test_the_options_by_which_collectors_are_recognised(
    certificates: Literal["required", "none"] | None, collectors: list[IdentityConfig], options: str
) -> None:
    tls = certificates and TlsConfig(authority="ca.pem", client_certificates=certificates)
    identities = {"services": _SERVICES}
    identities |= {f"collector{number}": one for number, one in enumerate(collectors)}
    security = SecurityConfig(tls=tls or None, identities=identities)
    assert _shown(MeshConfig(security=security)) == options


def test_without_security_there_are_none() -> None:
    assert _shown(MeshConfig()) == ""
