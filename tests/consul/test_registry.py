"""Leases, health and watches in a real Consul agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_discovery import metrics
from gymmesh_discovery.backends.consul import ConsulRegistry
from gymmesh_discovery.config import ConsulConfig
from gymmesh_discovery.service import DiscoveryService
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving.service import Service
from tests.consul.agent import Agent
from tests.unit.runtime.probe import MODEL, until
from tests.unit.runtime.probe_service import ProbeService

LONG_S = 60.0  # bounds what must happen, and no more


@asynccontextmanager
async def registry(consul: Agent, **config: Any) -> AsyncIterator[ConsulRegistry]:
    backend = ConsulRegistry(ConsulConfig(address=consul.address, **config))
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


@asynccontextmanager
async def probe(consul: Agent, instance_id: str = "probe-0", **config: Any) -> AsyncIterator[Any]:
    """A service that registers in Consul by itself, and its directory."""
    backend = ConsulRegistry(ConsulConfig(address=consul.address, **config))
    registry = DiscoveryService(f"registry-{instance_id}", backend)
    services: list[Service] = [registry, ProbeService(instance_id)]
    options = ServeOptions(metrics_port=None, drain_s=0.5)
    async with serving(services, options, exposed=lambda one: one.kind == MODEL) as served:
        yield served


def listed(backend: ConsulRegistry) -> dict[str, int]:
    return {one.id: one.health for one in backend.snapshot("", "")[1]}


def lists(backend: ConsulRegistry, expected: dict[str, int]) -> bool:
    return listed(backend) == expected


def sees(directory: PeerDirectory, count: int) -> bool:
    return len(directory.serving(MODEL, "policy")) == count


def at(address: str, instance_id: str = "a") -> pb.Instance:
    return pb.Instance(id=instance_id, service=MODEL, name="policy", address=address)


async def passing(
    consul: Agent, ids: set[str], meanwhile: Callable[[], bool] = lambda: True
) -> None:
    """Until these pass, as Consul itself says, with something that holds meanwhile."""
    async with asyncio.timeout(LONG_S):
        while True:
            assert meanwhile()
            if await consul.passing() == ids:
                return
            await asyncio.sleep(0.05)


async def test_services_find_one_another_and_leave(consul: Agent) -> None:
    async with registry(consul) as backend:
        async with probe(consul, "p0") as first, probe(consul, "p1") as second:
            serving = {"p0": pb.HEALTH_SERVING, "p1": pb.HEALTH_SERVING}
            await until(lambda: listed(backend) == serving)
            for served in (first, second):
                found = await served.directory.pick(MODEL, "policy")
                assert found.id in serving
                await until(partial(sees, served.directory, 2))
            (entry, _) = await consul.get("/v1/health/service/gymmesh-model-policy")
            assert entry["Service"]["Meta"]["gymmesh-contract"] == "1.0"
            assert entry["Checks"][1]["Type"] == "grpc"
        await until(lambda: listed(backend) == {})
    assert "gymmesh-model-policy" not in await consul.get("/v1/agent/services")


async def test_the_version_of_the_weights_is_followed(consul: Agent, tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}))
    model = ModelService(ModelConfig(backend="replay", path=str(path)), "policy", "policy-0")
    own = DiscoveryService("registry-0", ConsulRegistry(ConsulConfig(address=consul.address)))
    options = ServeOptions(metrics_port=None, drain_s=0.5)
    services: list[Service] = [own, model]
    async with registry(consul) as backend:

        def said() -> list[str]:
            return [one.meta.get("weights_version", "") for one in backend.snapshot("", "")[1]]

        async with serving(services, options, exposed=lambda one: one.kind == MODEL) as served:
            await until(lambda: said() == [""])
            for version in (7, 8):
                request = model_pb2.SetWeightsVersionRequest(version=version)
                peer = served.directory.peer(served.instance)
                await peer.SetWeightsVersion(request, timeout=LONG_S)
            await until(lambda: said() == ["8"])
            (entry,) = await consul.get("/v1/health/service/gymmesh-model-policy?passing")
            assert entry["Service"]["Meta"]["weights_version"] == "8"
            assert entry["Service"]["Meta"]["capacity"] == "64"
        await until(lambda: listed(backend) == {})
    assert await consul.passing() == set()


async def test_consul_restarts_and_hears_of_all_again(consul: Agent) -> None:
    async with registry(consul) as backend, probe(consul, "p0") as first, probe(consul, "p1"):
        serving = {"p0": pb.HEALTH_SERVING, "p1": pb.HEALTH_SERVING}
        await until(lambda: listed(backend) == serving)
        await until(partial(sees, first.directory, 2))
        await consul.kill()
        await until(lambda: backend.age_s() > 0.0)
        await asyncio.sleep(1.5)
        assert listed(backend) == serving  # the last view serves
        assert len(first.directory.serving(MODEL, "policy")) == 2
        assert backend.age_s() > 1.0
        await consul.start()
        await passing(consul, {"p0", "p1"}, lambda: listed(backend) == serving)
        await until(lambda: backend.age_s() == 0.0)
        assert listed(backend) == serving
        assert metrics.REGISTRY_VIEW_AGE.labels().value < LONG_S


async def test_consul_forgets_one(consul: Agent) -> None:
    async with probe(consul, "p0") as served:
        await consul.put("/v1/agent/service/deregister/p0")
        await passing(consul, {"p0"})  # registered anew at the next renewal
        await until(lambda: len(served.directory.serving(MODEL, "policy")) == 1)


async def test_an_id_that_is_taken(consul: Agent) -> None:
    async with probe(consul, "p0"):
        with pytest.raises(MeshError, match="another live instance has the id 'p0'") as raised:
            async with probe(consul, "p0"):
                pass
        assert raised.value.reason == errors_pb2.ERROR_REASON_INSTANCE_EXISTS
        assert await consul.passing() == {"p0"}  # the first one is left alone


async def test_a_lease_that_is_never_renewed(consul: Agent) -> None:
    async with registry(consul) as backend:
        async with registry(consul, check="ttl") as owner:
            await owner.register(at("127.0.0.1:9"), 3, "")
            await until(lambda: listed(backend) == {"a": pb.HEALTH_SERVING})
        # Its process is gone without a word.
        await until(lambda: listed(backend) == {"a": pb.HEALTH_NOT_SERVING})
        # The id may be taken over by another place then.
        async with registry(consul, check="ttl") as owner:
            await owner.register(at("127.0.0.1:10"), 3, "")
            await until(lambda: listed(backend) == {"a": pb.HEALTH_SERVING})
            # Within the process that gave it, a lease ends as the contract says.
            await until(lambda: listed(backend) == {})


async def test_what_the_lease_says_of_health(consul: Agent) -> None:
    async with registry(consul) as backend, registry(consul, check="ttl") as owner:
        lease, length = await owner.register(at("127.0.0.1:9"), 30, "")
        assert length == 30
        for health in (pb.HEALTH_NOT_SERVING, pb.HEALTH_SERVING, pb.HEALTH_DRAINING):
            assert await owner.renew(lease, health) == 30
            await until(partial(lists, backend, {"a": health}))
        lease, _ = await owner.register(at("127.0.0.1:9"), 30, lease)  # replaced: not draining
        await owner.renew(lease, pb.HEALTH_SERVING)
        await until(lambda: listed(backend) == {"a": pb.HEALTH_SERVING})
        with pytest.raises(MeshError) as raised:
            await owner.renew("another lease", pb.HEALTH_SERVING)
        assert raised.value.reason == errors_pb2.ERROR_REASON_LEASE_NOT_FOUND
        await owner.deregister(lease)
        await owner.deregister(lease)
        await until(lambda: listed(backend) == {})


async def test_a_lease_that_somebody_took_over(consul: Agent) -> None:
    async with registry(consul, check="ttl") as one, registry(consul, check="ttl") as other:
        lease, _ = await one.register(at("127.0.0.1:9"), 30, "")
        await other.register(at("127.0.0.1:9"), 30, "")  # started again at the same place
        with pytest.raises(MeshError) as raised:
            await one.renew(lease, pb.HEALTH_SERVING)
        assert raised.value.reason == errors_pb2.ERROR_REASON_LEASE_NOT_FOUND
        await one.deregister(lease)
        assert await consul.passing() == {"a"}


async def test_where_consul_cannot_reach_a_service_it_reports(
    consul: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing listens there, as behind a firewall: three renewals on, Consul hears reports."""
    async with registry(consul) as backend:
        lease, _ = await backend.register(at("127.0.0.1:9"), 300, "")
        await until(lambda: listed(backend) == {"a": pb.HEALTH_NOT_SERVING})
        for _ in range(3):
            await backend.renew(lease, pb.HEALTH_SERVING)
        await until(lambda: listed(backend) == {"a": pb.HEALTH_SERVING})
        assert "can't reach a at 127.0.0.1:9" in caplog.text
        await backend.renew(lease, pb.HEALTH_SERVING)
        await backend.deregister(lease)


async def test_a_stranger_in_consul(consul: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """What others registered is used where it can be, and left out with a line where not."""
    async with registry(consul) as backend:
        good = {"ID": "by-hand", "Name": "gymmesh-model-policy", "Address": "10.0.0.9", "Port": 7}
        await consul.put("/v1/agent/service/register", good)
        meta = {"gymmesh-contract": "9.0"}
        await consul.put("/v1/agent/service/register", {**good, "ID": "future", "Meta": meta})
        await consul.put("/v1/agent/service/register", {"ID": "db", "Name": "gymmesh", "Port": 1})
        await until(lambda: listed(backend) == {"by-hand": pb.HEALTH_SERVING})
        await until(lambda: "future" in caplog.text)
        assert "contract version '9.0'" in caplog.text
        (instance,) = backend.snapshot(MODEL, "policy")[1]
        assert instance.address == "10.0.0.9:7"


async def test_prefixes_keep_meshes_apart(consul: Agent) -> None:
    async with probe(consul, "p0", prefix="red") as red, probe(consul, "p1", prefix="blue") as blue:
        await until(lambda: len(red.directory.serving(MODEL, "policy")) == 1)
        await until(lambda: len(blue.directory.serving(MODEL, "policy")) == 1)
        assert [one.id for one in red.directory.serving(MODEL, "policy")] == ["p0"]


async def test_a_watch_follows_over_the_discovery_service(consul: Agent) -> None:
    """A discovery service over Consul shows its callers what is registered there directly."""
    backend = ConsulRegistry(ConsulConfig(address=consul.address))
    services = [DiscoveryService("registry-0", backend)]
    async with serving(services, ServeOptions(metrics_port=None, drain_s=0.5)) as central:
        options = ServeOptions(
            metrics_port=None, drain_s=0.5, discovery_address=central.instance.address
        )
        async with serving(ProbeService("through-it"), options), probe(consul, "by-itself") as own:
            directory = PeerDirectory()
            peer: Any = directory.plain_peer(central.instance.address, DiscoveryService.kind)
            await until(lambda: len(own.directory.serving(MODEL, "policy")) == 2)
            await until(lambda: set(listed(backend)) == {"through-it", "by-itself"})
            page = await peer.ListInstances(pb.ListInstancesRequest(), timeout=10)
            assert [one.id for one in page.instances] == ["by-itself", "through-it"]
            await directory.close()


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(KeyError):
        monkeypatch.delenv("CONSUL_HTTP_TOKEN", raising=False)
    assert "CONSUL_HTTP_TOKEN" not in os.environ
