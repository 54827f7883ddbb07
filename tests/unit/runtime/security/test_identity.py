"""Identities: by a certificate's names, and by tokens."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymmesh_runtime.config import ConfigError, load_config
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.config import IdentityConfig
from gymmesh_runtime.security.identity import Identities

TOKEN = "a-long-and-random-token"
DIGEST = sha256(TOKEN.encode()).hexdigest()


def identities(**configs: dict[str, Any]) -> Identities:
    return Identities({name: IdentityConfig(**one) for name, one in configs.items()})


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ({"x509_common_name": [b"trainer"]}, "ann"),
        ({"peer_dns": [b"localhost", b"trainer"]}, "ann"),
        ({"peer_uri": [b"spiffe://mesh/agents"], "x509_common_name": [b"trainer"]}, "agents"),
        ({"peer_ip": [b"trainer"], "x509_subject": [b"CN=trainer"]}, None),
        ({"x509_common_name": [b"TRAINER"]}, None),
        ({"x509_common_name": [b"\xff"]}, None),
        ({"x509_common_name": []}, None),
        ({}, None),
    ],
)
def test_by_certificate(shown: dict[str, list[bytes]], name: str | None) -> None:
    known = identities(
        ann={"certificates": ("trainer",), "may": ("collect",)},
        agents={"certificates": ("spiffe://mesh/agents",), "may": ("serve",)},
    )
    found = known.of_certificate(shown)
    assert (found.name if found else None) == name


def test_by_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("another-token\n")
    known = identities(
        ann={"token_sha256": DIGEST.upper(), "may": ("collect",)},
        bob={"token_file": str(path), "may": ("control",)},
    )
    ann, bob = known.of_token(TOKEN), known.of_token("another-token")
    assert ann is not None
    assert bob is not None
    assert (ann.name, bob.name) == ("ann", "bob")
    assert ann.may == {"collect", "observe"}
    for wrong in ("", TOKEN[:-1], TOKEN + "x", DIGEST, "\udcff"):
        assert known.of_token(wrong) is None


def test_a_token_file_without_one_is_named() -> None:
    with pytest.raises(ConfigError, match=r"security\.identities\.ann\.token_file"):
        identities(ann={"token_file": "none-such", "may": ("collect",)})


@pytest.mark.parametrize(
    ("identity", "problem"),
    [
        ({"may": ["collect"]}, "needs 'certificates', 'token_file' or 'token_sha256'"),
        ({"token_sha256": "abc", "may": ["collect"]}, "64 hexadecimal digits"),
        ({"token_sha256": DIGEST, "may": []}, "'may' is missing or empty"),
        ({"certificates": ["x"], "may": ["collect"]}, "client_certificates: required"),
    ],
)
def test_what_a_configuration_may_not_say(identity: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"identities": {"ann": identity}}, SecurityConfig)


def test_two_with_the_same_token() -> None:
    one = {"token_sha256": DIGEST, "may": ["collect"]}
    with pytest.raises(msgspec.ValidationError, match="'ann' and 'bob' are both identified by"):
        msgspec.convert({"identities": {"ann": one, "bob": one}}, SecurityConfig)


def test_a_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "security.yaml"
    path.write_text(f"identities:\n  ann:\n    token_sha256: {DIGEST}\n    may: [colect]\n")
    with pytest.raises(ConfigError, match=r"security.yaml:4: identities.ann.may\[0\].*collect"):
        load_config([path], [], SecurityConfig)
