"""What Prometheus is told to scrape, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery import http_sd
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.config import DiscoveryConfig
from gymmesh_discovery.edges import edges_of
from gymmesh_discovery.http_sd import PATH, HttpSdEdge, targets_of
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.serve import ServeOptions, serving
from tests.fuzz.streams import exchanged


def instance(instance_id: str, metrics: str, **fields: Any) -> pb.Instance:
    usual = {"service": "x.Agent", "name": "loop", "address": "127.0.0.1:1", "health": 1}
    return pb.Instance(id=instance_id, metrics_address=metrics, **{**usual, **fields})


def test_a_process_is_scraped_once() -> None:
    place = pb.Locality(region="r", zone="z", host="h")
    [one] = targets_of(
        [
            instance("b", "10.0.0.1:9", health=3, locality=place),
            instance("a", "10.0.0.1:9", name="math", service="x.Resource", locality=place),
        ]
    )
    assert one == {
        "targets": ["10.0.0.1:9"],
        "labels": {
            "__meta_gymmesh_id": "a,b",
            "__meta_gymmesh_service": "x.Agent,x.Resource",
            "__meta_gymmesh_name": "loop,math",
            "__meta_gymmesh_health": "draining,serving",
            "__meta_gymmesh_region": "r",
            "__meta_gymmesh_zone": "z",
            "__meta_gymmesh_host": "h",
        },
    }


@pytest.mark.parametrize(
    "metrics", ["", "nowhere", "http://a:1", "a:1/path", "u:p@a:1", "a:99999", ":1", "a:1?x=y"]
)
def test_what_is_no_address_is_not_scraped(metrics: str) -> None:
    good = instance("b", "[::1]:9")
    assert [one["targets"] for one in targets_of([instance("a", metrics), good])] == [["[::1]:9"]]


async def test_over_http() -> None:
    registry = MemoryRegistry()
    edge = HttpSdEdge("127.0.0.1:0")
    service = DiscoveryService("registry", registry, edges=[edge])
    await service.open(PeerDirectory())
    try:
        url = f"http://{edge.address}{PATH}"
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as answer:
                assert answer.status == 200
                assert answer.content_type == "application/json"
                assert await answer.json() == []
            lease, _ = await registry.register(instance("a", "127.0.0.1:9"), 60, "")
            async with session.get(url) as answer:
                assert [one["targets"] for one in await answer.json()] == [["127.0.0.1:9"]]
            await registry.deregister(lease)
            async with session.get(url) as answer:
                assert await answer.json() == []
            async with session.post(url) as answer:
                assert answer.status == 405
            async with session.get(f"http://{edge.address}/") as answer:
                assert answer.status == 404
        with pytest.raises(OSError, match="HTTP service discovery"):
            await HttpSdEdge(edge.address).open(registry, Credentials())
    finally:
        await service.close()
        await service.close()


async def test_the_discovery_service_lists_itself_and_once() -> None:
    """It is in no registry of its own; where another registry lists it, that entry stands."""
    registry = MemoryRegistry()
    edge = HttpSdEdge("127.0.0.1:0")
    service = DiscoveryService("registry-0", registry, edges=[edge])
    async with serving(service, ServeOptions()) as served, aiohttp.ClientSession() as session:
        url = f"http://{edge.address}{PATH}"
        async with session.get(url) as answer:
            [own] = await answer.json()
        assert own["targets"] == [served.instance.metrics_address]
        assert own["labels"]["__meta_gymmesh_service"] == "gymmesh.discovery.v1.DiscoveryService"
        assert own["labels"]["__meta_gymmesh_name"] == "registry"
        assert own["labels"]["__meta_gymmesh_health"] == "serving"
        async with session.get(f"http://{own['targets'][0]}/metrics") as answer:
            assert "gymmesh_registry_expired_total" in await answer.text()
        await registry.register(instance("registry-0", "127.0.0.1:9", name="listed"), 60, "")
        async with session.get(url) as answer:
            assert [one["targets"] for one in await answer.json()] == [["127.0.0.1:9"]]


@pytest.mark.parametrize("said", [b"GET /a b HTTP/1.1\r\n\r\n", b"X" * 9000, b"\xff\r\n\r\n"])
async def test_what_is_no_request_is_refused_and_not_logged(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    edge = HttpSdEdge("127.0.0.1:0")
    service = DiscoveryService("registry", MemoryRegistry(), edges=[edge])
    await service.open(PeerDirectory())
    try:
        came = await exchanged(edge.address, [said], end=False)
        assert came.data.startswith(b"HTTP/1.0 400 ")
        assert came.problem == ""
    finally:
        await service.close()
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("path", [PATH, "/"])
async def test_a_reader_that_hangs_up_before_its_answer_is_not_logged(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The library finds the connection closed when it says that the reader may go on."""
    edge = HttpSdEdge("127.0.0.1:0")
    await edge.open(MemoryRegistry(), Credentials(None))
    host, _, port = edge.address.rpartition(":")
    try:
        with socket.create_connection((host, int(port))) as reader:
            head = f"GET {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"
            reader.sendall(head.encode())
            reader.shutdown(socket.SHUT_WR)  # both at once, before the server looks
            assert await asyncio.to_thread(reader.recv, 100) == b""
    finally:
        await edge.close()
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("said", [b"", b"GET /v1/ht", b"GET /v1/http-sd HTTP/1.1\r\nHost: a\r\n"])
async def test_who_does_not_go_on_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(http_sd, "_CONNECTION_S", 0.1)
    edge = HttpSdEdge("127.0.0.1:0")
    service = DiscoveryService("registry", MemoryRegistry(), edges=[edge])
    await service.open(PeerDirectory())
    try:
        host, _, port = edge.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
    finally:
        await service.close()


def test_edges_are_what_the_configuration_says() -> None:
    assert edges_of(DiscoveryConfig()) == []
    names = [type(one).__name__ for one in edges_of(DiscoveryConfig(xds=True, http_sd="[::1]:0"))]
    assert names == ["XdsEdge", "HttpSdEdge"]
    with pytest.raises(ConfigError, match=r"discovery\.http_sd"):
        edges_of(DiscoveryConfig(http_sd="nowhere"))
