"""Where a process listens, and the warning where others could reach it."""

from __future__ import annotations

import logging
import socket
import urllib.request
from typing import Any

import pytest

from gymmesh_runtime.addresses import at_port, exposure, is_local
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving.exposition import MetricsEndpoint
from tests.conftest import require
from tests.unit.runtime.probe import unary
from tests.unit.runtime.probe_service import ProbeService


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_is_nobody_elses(host: str) -> None:
    assert is_local(host)
    assert exposure("it listens", host, "call it") == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "fe80::1", "box", "127.0.0.1.evil"])
def test_what_others_can_reach_is_said(host: str) -> None:
    sentence = exposure("it listens", host, "call it")
    assert sentence.startswith(f"NO AUTHENTICATION, NO ENCRYPTION: it listens on {host}, and ")
    assert ("any address of this machine" in sentence) == (host in ("0.0.0.0", "::"))
    assert "\n" not in sentence


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_each_listener_says_so(host: str, caplog: pytest.LogCaptureFixture) -> None:
    insecure = SecurityConfig(insecure=True)
    # A machine may have several addresses; nobody connects here.
    options = ServeOptions(host=host, advertise_host="box", drain_s=1.0, security=insecure)
    async with serving(ProbeService(), options):
        pass
    said = warned(caplog)
    assert len(said) == (0 if host == "127.0.0.1" else 2)
    if said:
        metrics, service = said
        assert "metrics are served on 0.0.0.0" in metrics
        assert "gymmesh.model.v1.ModelService is served on 0.0.0.0" in service


async def test_ipv6(caplog: pytest.LogCaptureFixture) -> None:
    require(_has_ipv6(), "IPv6", "give the machine an IPv6 loopback address")
    directory = PeerDirectory()
    async with serving(ProbeService(), ServeOptions(host="::1", drain_s=1.0)) as up:
        assert up.instance.address.startswith("[::1]:")
        assert up.instance.metrics_address.startswith("[::1]:")
        await directory.peer(up.instance).CreateResponse(unary("ok"), timeout=20.0)
    await directory.close()
    assert warned(caplog) == []


def test_metrics_over_ipv6() -> None:
    require(_has_ipv6(), "IPv6", "give the machine an IPv6 loopback address")
    endpoint = MetricsEndpoint.start("::1", 0)
    try:
        page: Any = urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=20)
        assert b"gymmesh_" in page.read()
    finally:
        endpoint.stop()


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_addresses() -> None:
    assert at_port("127.0.0.1", 1) == "127.0.0.1:1"
    assert at_port("::1", 1) == "[::1]:1"


def test_tokens_are_some_authentication() -> None:
    sentence = exposure("tools are offered", "0.0.0.0", "call them", tokens=True)
    assert sentence.startswith("NO ENCRYPTION: tools are offered on 0.0.0.0")
