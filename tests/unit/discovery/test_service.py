"""DiscoveryService with the memory registry, over every path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends import watchers
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.unit.runtime.probe import DISCOVERY, MODEL, PATHS, instance_at, until


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A registry behind one path, its clock, and a few short ways to call it."""

    def __init__(self, peer: Any, clock: Clock, service: DiscoveryService) -> None:
        self.peer = peer
        self.clock = clock
        self.service = service

    async def register(self, instance_id: str, lease_s: int = 10, **fields: Any) -> str:
        lease_id = fields.pop("lease_id", "")
        address = fields.pop("address", "127.0.0.1:1")
        instance = instance_at(address, instance_id=instance_id, **fields)
        request = pb.RegisterRequest(instance=instance, lease_s=lease_s, lease_id=lease_id)
        reply = await self.peer.Register(request, timeout=60.0)
        assert reply.lease_s == lease_s
        lease: str = reply.lease_id
        return lease

    async def ids(self, **fields: Any) -> list[str]:
        page = await self.peer.ListInstances(pb.ListInstancesRequest(**fields), timeout=60.0)
        return [one.id for one in page.instances]

    def watch(self, **fields: Any) -> Any:
        return self.peer.WatchInstances(pb.WatchInstancesRequest(**fields), timeout=50)


@pytest.fixture(params=sorted(PATHS))
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    clock = Clock()
    service = DiscoveryService("registry-0", MemoryRegistry(clock))
    await service.open(PeerDirectory())
    async with PATHS[request.param](service.servicers()) as directory:
        peer = directory.peer(directory.instances()[0], DISCOVERY)
        yield Bench(peer, clock, service)
    await service.close()
    await service.close()


async def refusal(awaitable: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(awaitable, 60)
    return caught.value


async def following(frames: Any) -> pb.WatchInstancesResponse:
    response: pb.WatchInstancesResponse = await asyncio.wait_for(anext(frames), 60)
    return response


async def test_an_instance_is_listed_while_its_lease_lives(bench: Bench) -> None:
    lease = await bench.register("a", 10)
    bench.clock.now += 9
    await bench.peer.Renew(pb.RenewRequest(lease_id=lease), timeout=60.0)
    bench.clock.now += 9
    assert await bench.ids() == ["a"]
    bench.clock.now += 1.1
    assert await bench.ids() == []
    error = await refusal(bench.peer.Renew(pb.RenewRequest(lease_id=lease), timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_LEASE_NOT_FOUND
    assert lease not in str(error) + repr(error.metadata)
    assert await bench.register("a") != lease


async def test_a_lease_that_ran_out_frees_the_id_at_once(bench: Bench) -> None:
    await bench.register("a", 10)
    bench.clock.now += 10
    await bench.register("a", 10)


async def test_an_id_is_held_by_one(bench: Bench) -> None:
    lease = await bench.register("a")
    error = await refusal(bench.register("a", address="127.0.0.1:2"))
    assert error.reason == errors_pb2.ERROR_REASON_INSTANCE_EXISTS
    assert error.metadata == {"instance_id": "a"}
    assert "'a'" in error.message
    assert await bench.register("a", lease_id=lease, name="judge") != lease
    assert await bench.ids(name="judge") == ["a"]


async def test_a_service_that_was_killed_is_listed_as_soon_as_it_is_back(bench: Bench) -> None:
    before = await bench.register("a")
    after = await bench.register("a")
    assert after != before
    assert await bench.ids() == ["a"]
    await bench.peer.Deregister(pb.DeregisterRequest(lease_id=before), timeout=60.0)
    assert await bench.ids() == ["a"]


async def test_giving_a_lease_back_is_harmless_twice(bench: Bench) -> None:
    lease = await bench.register("a")
    for _ in range(2):
        await bench.peer.Deregister(pb.DeregisterRequest(lease_id=lease), timeout=60.0)
    assert await bench.ids() == []


async def test_bad_requests(bench: Bench) -> None:
    crowded = instance_at("127.0.0.1:1")
    for index in range(65):
        crowded.meta[str(index)] = "x"
    error = await refusal(bench.peer.Register(pb.RegisterRequest(instance=crowded), timeout=60.0))
    assert error.reason == errors_pb2.ERROR_REASON_FIELD_INVALID
    error = await refusal(bench.peer.Register(pb.RegisterRequest(), timeout=60.0))
    assert error.metadata["field"] == "instance"
    error = await refusal(bench.peer.Renew(pb.RenewRequest(), timeout=60.0))
    assert error.metadata["field"] == "lease_id"
    assert await bench.ids() == []


@pytest.mark.parametrize("size", [1, 3, 7, 50])
async def test_pages_give_everything_once_in_order(bench: Bench, size: int) -> None:
    for index in range(13):
        await bench.register(f"i-{index:02}", service=MODEL if index % 2 else DISCOVERY)
    seen, token, pages = [], "", 0
    while pages == 0 or token:
        request = pb.ListInstancesRequest(page_size=size, page_token=token, service=DISCOVERY)
        page = await bench.peer.ListInstances(request, timeout=60.0)
        assert len(page.instances) <= size
        seen += [one.id for one in page.instances]
        token, pages = page.next_page_token, pages + 1
    assert seen == [f"i-{index:02}" for index in range(0, 13, 2)]
    assert pages == -(-7 // size)


async def test_a_negative_page_size_is_refused(bench: Bench) -> None:
    error = await refusal(bench.ids(page_size=-5))
    assert error.reason_name == "FIELD_INVALID"
    assert error.metadata["field"] == "page_size"


async def test_a_watch_is_a_snapshot_and_then_every_change(bench: Bench) -> None:
    await bench.register("b")
    lease = await bench.register("a")
    async with aclosing(bench.watch()) as frames:
        first = await following(frames)
        assert [one.id for one in first.snapshot.instances] == ["a", "b"]
        await bench.register("c")
        assert (await following(frames)).upserted.id == "c"
        draining = pb.RenewRequest(lease_id=lease, health=pb.HEALTH_DRAINING)
        await bench.peer.Renew(draining, timeout=60.0)
        changed = await following(frames)
        assert (changed.upserted.id, changed.upserted.health) == ("a", pb.HEALTH_DRAINING)
        await bench.peer.Renew(draining, timeout=60.0)  # no change: not sent
        await bench.peer.Deregister(pb.DeregisterRequest(lease_id=lease), timeout=60.0)
        gone = await following(frames)
        assert gone.removed_id == "a"
        assert gone.version == first.version + 3


async def test_a_watcher_is_told_of_leases_that_run_out(bench: Bench) -> None:
    await bench.register("a")
    async with aclosing(bench.watch()) as frames:
        await following(frames)
        bench.clock.now += 100  # the sweeper sees it, nobody calls
        assert (await following(frames)).removed_id == "a"


async def test_a_watch_is_filtered(bench: Bench) -> None:
    async with aclosing(bench.watch(service=MODEL, name="judge")) as frames:
        assert not (await following(frames)).snapshot.instances
        await bench.register("a", name="policy")
        await bench.register("b", name="judge", service=DISCOVERY)
        lease = await bench.register("c", name="judge")
        assert (await following(frames)).upserted.id == "c"
        # Under another name it is gone for this watcher, and comes back as new.
        lease = await bench.register("c", name="policy", lease_id=lease)
        assert (await following(frames)).removed_id == "c"
        lease = await bench.register("c", name="judge", lease_id=lease)
        assert (await following(frames)).upserted.id == "c"
        await bench.peer.Deregister(pb.DeregisterRequest(lease_id=lease), timeout=60.0)
        assert (await following(frames)).removed_id == "c"


async def test_a_watcher_that_falls_behind_is_sent_a_snapshot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "_QUEUE", 4)
    subscription = MemoryRegistry().subscribe()  # the bound is in force
    assert subscription._queue.maxsize == 4
    async with aclosing(bench.watch()) as frames:
        known = {one.id for one in (await following(frames)).snapshot.instances}
        assert known == set()
        # Registered in the backend itself, with no chance for the watcher to run between.
        for index in range(30):
            coroutine = bench.service._backend.register(
                instance_at("127.0.0.1:1", instance_id=f"i-{index}"), 10, ""
            )
            with pytest.raises(StopIteration):
                coroutine.send(None)
        snapshots = 0
        version = 0
        while len(known) < 30:
            response = await following(frames)
            assert response.version > version
            version = response.version
            if response.WhichOneof("change") == "snapshot":
                snapshots += 1
                known = {one.id for one in response.snapshot.instances}
            else:
                known.add(response.upserted.id)
        assert snapshots == 1
        await bench.register("last")
        assert (await following(frames)).upserted.id == "last"


async def test_a_watch_that_is_left_is_forgotten(bench: Bench) -> None:
    backend = bench.service._backend
    assert isinstance(backend, MemoryRegistry)
    async with aclosing(bench.watch()) as frames:
        await following(frames)
        assert len(backend._watchers) == 1
    await until(lambda: not backend._watchers)
