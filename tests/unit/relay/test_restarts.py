"""A relay that goes down, and the one that follows it: instances go over by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_relay.config import RelayConfig
from gymmesh_relay.service import RelayService
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving import RelayDialer, RelayedInstance
from tests.support.proxy import Proxy
from tests.unit.relay.test_cuts import Slow
from tests.unit.relay.world import CALL_S, MODEL, START_S
from tests.unit.runtime.probe import unary, until
from tests.unit.runtime.registry import registering


@asynccontextmanager
async def relay_at(registry: str, instance_id: str) -> AsyncIterator[tuple[RelayService, int]]:
    """A relay that registers elsewhere, and its port."""
    relay = RelayService(RelayConfig(), "door", instance_id)
    options = ServeOptions(metrics_port=None, drain_s=20.0, discovery_address=registry)
    async with serving(relay, options) as served:
        yield relay, int(served.instance.address.rpartition(":")[2])


def found(backend: MemoryRegistry) -> discovery_pb2.Instance | None:
    """The offered instance as the registry lists it."""
    listed = backend.snapshot(MODEL, "policy")[1]
    return next(iter(listed), None)


async def test_an_instance_goes_over_to_the_relay_that_follows() -> None:
    slow = Slow()
    async with registering() as (registry, backend):
        first = relay_at(registry, "relay-1")
        _, port = await first.__aenter__()
        async with Proxy(port) as link:
            dialer = RelayDialer(link.address, RelayedInstance("policy", "probe-0", {MODEL: slow}))
            await dialer.start(START_S)
            before = found(backend)
            assert before is not None
            assert before.meta["relay"] == "relay-1"
            callers = PeerDirectory()
            callers.upsert(before)
            call = asyncio.create_task(
                callers.peer(before).CreateResponse(unary(""), timeout=CALL_S)
            )
            await until(lambda: slow.began == 1)
            async with relay_at(registry, "relay-2") as (_, next_port):
                link._to = ("127.0.0.1", next_port)
                going = asyncio.create_task(first.__aexit__(None, None, None))
                await until(
                    lambda: (
                        (one := found(backend)) is None
                        or one.health == discovery_pb2.HEALTH_DRAINING
                    )
                )
                slow.go.set()
                await call  # what ran at the first relay ends there
                await going
                await until(
                    lambda: (
                        (one := found(backend)) is not None
                        and one.meta["relay"] == "relay-2"
                        and one.health == discovery_pb2.HEALTH_SERVING
                    )
                )
                after = found(backend)
                assert after is not None
                # Its address may be the one before: the system may deal a freed port again.
                await until(lambda: dialer.address == after.address)  # it hears of it last
                callers.upsert(after)
                await callers.peer(after).CreateResponse(unary(""), timeout=CALL_S)
                await callers.close()
                await dialer.stop(0.0)
                await until(lambda: found(backend) is None)


async def test_a_registry_that_lost_its_memory_hears_of_the_instance_again() -> None:
    async with (
        registering() as (registry, backend),
        relay_at(registry, "relay-1") as (relay, port),
    ):
        link = RelayDialer(
            f"127.0.0.1:{port}", RelayedInstance("policy", "probe-0", {MODEL: Slow()})
        )
        await link.start(START_S)
        assert found(backend) is not None
        instance = relay._instances["probe-0"]
        assert instance._registration is not None
        await backend.deregister(instance._registration._lease_id)
        assert found(backend) is None
        relay.renew_soon()
        await until(lambda: found(backend) is not None)
        await link.stop(0.0)
