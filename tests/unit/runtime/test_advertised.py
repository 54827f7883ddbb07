"""The address that others get, of a service that listens on all of a machine's."""

from __future__ import annotations

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_runtime import addresses as module
from gymmesh_runtime.addresses import advertised, own_addresses
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.serve import ServeOptions, serving
from tests.unit.runtime.probe import until
from tests.unit.runtime.probe_service import ProbeService
from tests.unit.runtime.registry import registering

LOOPBACK = ["127.0.0.1", "::1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "::1", "fe80::1", "box", "localhost"])
def test_one_address_speaks_for_itself(host: str) -> None:
    assert advertised(host, "", addresses=["10.1.1.1", "10.2.2.2"]) == host


@pytest.mark.parametrize("host", ["10.0.0.7", "2001:db8::7", "node-7.lab"])
def test_what_is_said_counts(host: str) -> None:
    for bound in ("0.0.0.0", "::", "127.0.0.1"):
        assert advertised(bound, host, addresses=[]) == host


@pytest.mark.parametrize(
    ("bound", "addresses", "expected"),
    [
        ("0.0.0.0", [*LOOPBACK, "10.0.0.7", "2001:db8::7", "fe80::1"], "10.0.0.7"),
        ("0.0.0.0", ["10.0.0.7", "169.254.3.4", "10.0.0.7"], "10.0.0.7"),
        ("::", [*LOOPBACK, "10.0.0.7", "2001:db8::7", "fe80::1"], "2001:db8::7"),
        ("::", [*LOOPBACK, "10.0.0.7", "fe80::1%eth0"], "10.0.0.7"),
        ("0:0::0", ["10.0.0.7"], "10.0.0.7"),
    ],
)
def test_the_one_address_that_others_can_use(
    bound: str, addresses: list[str], expected: str
) -> None:
    assert advertised(bound, "", addresses=addresses) == expected


@pytest.mark.parametrize(
    ("bound", "addresses", "why"),
    [
        (
            "0.0.0.0",
            [*LOOPBACK, "10.0.0.7", "172.17.0.1"],
            "several addresses: 10.0.0.7, 172.17.0.1",
        ),
        ("::", ["2001:db8::7", "2001:db8::8"], "several addresses: 2001:db8::7, 2001:db8::8"),
        ("0.0.0.0", [*LOOPBACK, "2001:db8::7"], "no address that other machines can reach"),
        ("::", LOOPBACK, "no address that other machines can reach"),
    ],
)
def test_what_cannot_be_told_is_asked_for(bound: str, addresses: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        advertised(bound, "", addresses=addresses)
    sentence = str(raised.value)
    assert sentence.startswith(f"mesh.advertise_host: the services listen on {bound}")
    assert why in sentence
    assert "--advertise HOST" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("wrong", ["0.0.0.0", "::", "10.0.0.7:9401", "[::1]", "a b", "unix:/x"])
def test_what_nobody_could_connect_to_is_refused(wrong: str) -> None:
    with pytest.raises(
        ConfigError, match=r"mesh\.advertise_host: other machines can't connect to the host '"
    ):
        advertised("0.0.0.0", wrong, addresses=[])


def test_this_machines_addresses_have_its_loopback() -> None:
    assert "127.0.0.1" in own_addresses()


@pytest.mark.parametrize(("said", "expected"), [("127.0.0.2", "127.0.0.2"), ("", "192.0.2.9")])
async def test_it_is_what_the_registry_and_the_metrics_get(
    said: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "own_addresses", lambda: ["127.0.0.1", "192.0.2.9"])
    async with registering() as (address, backend):
        options = ServeOptions(
            host="0.0.0.0",
            advertise_host=said,
            metrics_port=0,
            discovery_address=address,
            drain_s=1.0,
            security=SecurityConfig(insecure=True),
        )
        async with serving(ProbeService(), options) as served:
            await until(lambda: bool(backend.snapshot("", "")[1]))
            (listed,) = backend.snapshot("", "")[1]
            assert listed.health == pb.HEALTH_SERVING
            assert served.instance.address == listed.address
            assert listed.address.rpartition(":")[0] == expected
            assert listed.metrics_address.rpartition(":")[0] == expected


async def test_several_addresses_and_no_word_refuse_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "own_addresses", lambda: ["192.0.2.9", "192.0.2.10"])
    service = ProbeService()
    options = ServeOptions(host="0.0.0.0", security=SecurityConfig(insecure=True))
    with pytest.raises(ConfigError, match="--advertise HOST"):
        async with serving(service, options):
            pass
    assert service.events == []  # nothing was opened
