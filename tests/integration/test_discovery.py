"""Registration and DirectoryWatch against a registry that goes away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving import directory_watch
from gymmesh_runtime.serving import registration as registration_module
from gymmesh_runtime.serving.directory_watch import DirectoryWatch
from gymmesh_runtime.serving.registration import DiscoveryPeer, Registration
from tests.support.ports import free_port
from tests.unit.runtime.probe import DISCOVERY, MODEL, instance_at, served, until
from tests.unit.runtime.probe_service import ProbeService

BOUND_S = 240.0


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "LEASE_S", 3)  # the shortest that is granted
    for name in ("_CALL_TIMEOUT_S", "_STOP_S"):  # no call is given up because the machine is slow
        monkeypatch.setattr(registration_module, name, BOUND_S)


class Backend(MemoryRegistry):
    """Leases whose time passes when the test says so, and how often they were renewed."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.renewals = 0
        super().__init__(lambda: self.now)

    async def renew(self, lease_id: str, health: pb.Health.ValueType) -> int:
        length = await super().renew(lease_id, health)
        self.renewals += 1
        return length

    async def renewed(self, times: int) -> None:
        """Waits for further renewals."""
        wanted = self.renewals + times
        await until(lambda: self.renewals >= wanted)


@asynccontextmanager
async def registry(port: int = 0) -> AsyncIterator[tuple[str, Backend]]:
    """A registry that remembers nothing of the one before it; at a port that stays its own."""
    backend = Backend()
    service = DiscoveryService("registry-0", backend)
    await service.open(PeerDirectory())
    async with served(service.servicers(), port or free_port()) as address:
        yield address, backend
    await service.close()


@asynccontextmanager
async def calling(address: str) -> AsyncIterator[DiscoveryPeer]:
    directory = PeerDirectory()
    peer: DiscoveryPeer = directory.peer(instance_at(address, service=DISCOVERY))
    yield peer
    await directory.close()


def ids(backend: MemoryRegistry) -> list[str]:
    return [one.id for one in backend.snapshot("", "")[1]]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


INSTANCE = instance_at("127.0.0.1:1", instance_id="a")


async def test_a_registration_outlives_its_lease_and_is_given_back() -> None:
    async with registry() as (address, backend), calling(address) as peer:
        kept = Registration(peer, INSTANCE)
        await kept.start(BOUND_S)
        lease = kept._lease_id
        for _ in range(2):
            backend.now += 2.0  # of the 3 s that it lasts
            await backend.renewed(1)
        assert ids(backend) == ["a"]
        assert kept._lease_id == lease  # renewed, not registered anew
        await kept.stop()
        assert ids(backend) == []
        await kept.stop()


async def test_draining_is_not_undone_by_the_next_renewal() -> None:
    async with registry() as (address, backend), calling(address) as peer:
        kept = Registration(peer, INSTANCE)
        await kept.start(BOUND_S)
        await kept.drain()
        await backend.renewed(2)
        (listed,) = backend.snapshot("", "")[1]
        assert listed.health == pb.HEALTH_DRAINING
        await backend.deregister(kept._lease_id)  # as a registry that forgot does
        assert ids(backend) == []
        await until(lambda: ids(backend) == ["a"])
        (listed,) = backend.snapshot("", "")[1]
        assert listed.health == pb.HEALTH_DRAINING
        await kept.stop()


async def test_a_registry_that_forgot_a_lease_hears_at_once_that_its_holder_drains() -> None:
    async with registry() as (address, backend), calling(address) as peer:
        kept = Registration(peer, INSTANCE)
        await kept.start(BOUND_S)
        await backend.deregister(kept._lease_id)  # as a registry that forgot does
        await kept.drain()
        # Whoever follows the registry may list it still, by what another registry said.
        (listed,) = backend.snapshot("", "")[1]
        assert listed.health == pb.HEALTH_DRAINING
        await kept.stop()
        assert ids(backend) == []


async def test_a_registration_finds_the_registry_that_took_the_place_of_the_old() -> None:
    async with registry() as (address, backend):
        directory = PeerDirectory()
        peer = directory.peer(instance_at(address, service=DISCOVERY))
        kept = Registration(peer, INSTANCE)
        await kept.start(BOUND_S)
        assert ids(backend) == ["a"]
    await asyncio.sleep(1.5)  # a renewal fails meanwhile
    async with registry(port_of(address)) as (_, backend):
        await until(lambda: ids(backend) == ["a"])
        await kept.stop()
        assert ids(backend) == []
    await directory.close()


class Refusing(DiscoveryService):
    """Knows no lease, and refuses the first registrations after it was told to."""

    refusals = 0

    async def Register(self, request: pb.RegisterRequest, context: object) -> pb.RegisterResponse:
        if self.refusals > 0:
            self.refusals -= 1
            raise MeshError(errors_pb2.ERROR_REASON_QUEUE_FULL, "not now")
        return await super().Register(request, context)  # type: ignore[arg-type]  # handed on


async def test_a_registration_that_is_refused_once_is_tried_again() -> None:
    backend = Backend()
    service = Refusing("registry-0", backend)
    await service.open(PeerDirectory())
    async with served(service.servicers()) as address, calling(address) as peer:
        kept = Registration(peer, INSTANCE)
        await kept.start(BOUND_S)
        await backend.deregister(kept._lease_id)  # as a registry that forgot does
        service.refusals = 1
        await until(lambda: service.refusals == 0)
        await until(lambda: ids(backend) == ["a"])
        await kept.stop()
    await service.close()


async def test_a_registry_that_is_not_there_is_waited_for() -> None:
    port = free_port()
    async with calling(f"127.0.0.1:{port}") as peer:
        with pytest.raises(TimeoutError, match="'a' could not register within 0 s"):
            await Registration(peer, INSTANCE).start(0.2)
        kept = Registration(peer, INSTANCE)
        starting = asyncio.create_task(kept.start(BOUND_S))
        await asyncio.sleep(0.2)
        assert not starting.done()
        async with registry(port) as (_, backend):
            await asyncio.wait_for(starting, BOUND_S)
            assert ids(backend) == ["a"]
            await kept.stop()


async def test_an_id_that_is_taken_is_no_reason_to_wait() -> None:
    async with registry() as (address, _), calling(address) as peer:
        first = Registration(peer, INSTANCE)
        await first.start(BOUND_S)
        other = instance_at("127.0.0.1:2", instance_id="a")
        with pytest.raises(MeshError, match="another live instance has the id 'a'"):
            await asyncio.wait_for(Registration(peer, other).start(BOUND_S), BOUND_S)
        await first.stop()


async def test_a_service_is_listed_anew_as_soon_as_the_registry_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration_module, "LEASE_S", 300)  # the next renewal is far off
    async with contextlib.AsyncExitStack() as stack:
        async with registry() as (address, backend):
            options = ServeOptions(metrics_port=None, drain_s=1.0, discovery_address=address)
            up = await stack.enter_async_context(serving(ProbeService(), options))
            assert ids(backend) == ["probe-0"]
        async with registry(port_of(address)) as (_, backend):
            await until(lambda: ids(backend) == ["probe-0"])
            await until(lambda: [one.id for one in up.directory.instances()] == ["probe-0"])
            await stack.aclose()
            assert ids(backend) == []


async def test_a_registry_that_is_replaced_loses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_watch, "LEASE_S", 3)
    directory = PeerDirectory(watched=True)
    seen: list[set[str]] = []

    calls = PeerDirectory()
    async with registry() as (address, backend):
        watch = DirectoryWatch(calls.peer(instance_at(address, service=DISCOVERY)), directory)
        watch.on_snapshot = lambda: seen.append({one.id for one in directory.instances()})
        watch.start()
        await backend.register(INSTANCE, 30, "")
        lease, _ = await backend.register(instance_at("127.0.0.1:2", instance_id="b"), 30, "")
        await backend.renew(lease, pb.HEALTH_DRAINING)
        await backend.register(instance_at("127.0.0.1:3", instance_id="c"), 30, "")
        await until(lambda: len(directory.instances()) == 3)
        await until(lambda: len(directory.serving(MODEL, "policy")) == 2)
    async with registry(port_of(address)) as (_, backend):
        await until(lambda: len(seen) > 1)
        # Nobody waits to hear again of one that was about to end.
        assert seen[-1] == {"a", "c"}
        await backend.register(INSTANCE, 30, "")
        # One has not registered again in its time, and is forgotten; the other has.
        await until(lambda: [one.id for one in directory.instances()] == ["a"])
    await watch.stop()
    await calls.close()
    await directory.close()


async def test_a_watch_follows_and_resyncs_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory_watch, "LEASE_S", 2)
    directory = PeerDirectory(watched=True)
    local = instance_at("direct:here", instance_id="here")
    directory.add_direct(local, {MODEL: object()})
    calls = PeerDirectory()
    seen: list[list[str]] = []  # what was known after each snapshot

    def known() -> list[str]:
        return [one.id for one in directory.instances()]

    async with registry() as (address, backend):
        watch = DirectoryWatch(calls.peer(instance_at(address, service=DISCOVERY)), directory)
        watch.on_snapshot = lambda: seen.append(known())
        watch.start()
        lease, _ = await backend.register(INSTANCE, 10, "")
        await backend.register(instance_at("127.0.0.1:2", instance_id="b"), 10, "")
        await until(lambda: known() == ["a", "b", "here"])
        await backend.renew(lease, pb.HEALTH_DRAINING)
        await until(lambda: directory.instances()[0].health == pb.HEALTH_DRAINING)
        await backend.deregister(lease)
        await until(lambda: known() == ["b", "here"])
        assert not directory.outdated
    # Without a registry what is known stays in use.
    await until(lambda: directory.outdated)
    assert known() == ["b", "here"]
    async with registry(port_of(address)) as (_, backend):
        await backend.register(instance_at("127.0.0.1:3", instance_id="c"), 10, "")
        # It knows nobody yet who was there before: they have the time of a lease to register.
        await until(lambda: known() == ["c", "here"])
        assert {"b", "here"} <= set(seen[-1])
        assert not directory.outdated
        await watch.stop()
        await backend.register(INSTANCE, 10, "")
        await asyncio.sleep(0.1)
        assert known() == ["c", "here"]
    await calls.close()
    await directory.close()
