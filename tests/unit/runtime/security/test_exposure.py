"""Where a server may listen without TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.exposure import check_exposure, check_plain
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire.server import MeshServer
from tests.support.certificates import Authority
from tests.unit.runtime.probe import unary
from tests.unit.runtime.probe_service import ProbeService


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "box"])
@pytest.mark.parametrize("config", [None, SecurityConfig()])
def test_a_plain_listener_for_others_is_refused(host: str, config: SecurityConfig | None) -> None:
    with pytest.raises(ConfigError, match=r"security\.tls.*--insecure") as caught:
        check_exposure(host, config)
    assert host in str(caught.value)
    check_exposure(host, SecurityConfig(insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_exposure(host, None)


def test_what_is_read_over_http_asks_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("services")
    check_plain("127.0.0.1", None, "metrics")
    with pytest.raises(ConfigError, match=r"metrics on 0\.0\.0\.0.*plain_metrics"):
        check_plain("0.0.0.0", None, "metrics")
    for security in (
        authority.tls(pair),
        SecurityConfig(plain_metrics=True),
        SecurityConfig(insecure=True),
    ):
        check_plain("0.0.0.0", security, "metrics")


async def test_every_server_asks() -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        await MeshServer([]).start("0.0.0.0", 0)
    with pytest.raises(ConfigError, match="--insecure"):
        async with serving(ProbeService(), ServeOptions(host="0.0.0.0")):
            pytest.fail("it listens")


async def test_a_server_needs_a_certificate_to_serve_tls_with(tmp_path: Path) -> None:
    options = ServeOptions(security=Authority(tmp_path).tls(None))
    with pytest.raises(ConfigError, match="needs a certificate and a key"):
        async with serving(ProbeService(), options):
            pytest.fail("it listens")


async def test_with_tls_others_may_connect_and_nothing_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    security = authority.tls(authority.issue("services"))
    # A machine may have several addresses.
    options = ServeOptions(
        host="0.0.0.0", advertise_host="127.0.0.1", drain_s=1.0, security=security
    )
    async with serving(ProbeService(), options) as up:
        peer = up.directory.peer(up.instance)
        await peer.CreateResponse(unary("ok"), timeout=30.0)
    assert "NO AUTHENTICATION" not in caplog.text
