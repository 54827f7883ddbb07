"""Real gRPC channels, whose resolver and load balancing are gRPC's own."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator

import grpc
import pytest

from gymmesh.discovery.v1 import discovery_pb2 as pb
from tests.conftest import require
from tests.xds.plane import BOUND_S, Plane, ask, asked, models, plane, until_asked, use

pytestmark = pytest.mark.timeout(120)


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name of the test's own: channels of one target in a process share a bootstrap."""
    return f"policy-{next(_numbers)}"


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plane]:
    async with plane() as one:
        use(monkeypatch, one.address)
        yield one


async def test_calls_take_turns(running: Plane, name: str) -> None:
    async with models(name, "a", "b", "c") as started:
        for one in started:
            await running.register(one.instance)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: seen == {"a", "b", "c"})
            assert await asked(channel, 30) == {"a": 10, "b": 10, "c": 10}


async def test_weights_share_the_calls(running: Plane, name: str) -> None:
    async with models(name, "a", "b") as (light, heavy):
        heavy.instance.weight = 9
        await running.register(light.instance)
        await running.register(heavy.instance)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: "b" in seen)
            counts = await asked(channel, 400)
            # 360 are expected; less than 300 is ten standard deviations away.
            assert 300 < counts["b"] < 400


@pytest.mark.parametrize("health", [pb.HEALTH_NOT_SERVING, pb.HEALTH_DRAINING])
async def test_who_takes_no_calls_gets_none(
    running: Plane, name: str, health: pb.Health.ValueType
) -> None:
    async with models(name, "a", "b") as started:
        for one in started:
            await running.register(one.instance)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: seen == {"a", "b"})
            await running.report("a", health)
            await until_asked(channel, lambda seen: seen == {"b"})
            await running.report("a", pb.HEALTH_SERVING)
            await until_asked(channel, lambda seen: seen == {"a", "b"})
            await running.deregister("b")
            await until_asked(channel, lambda seen: seen == {"a"})


async def test_who_is_killed_is_gone_when_its_lease_is(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    now = [time.monotonic()]
    async with plane(clock=lambda: now[0]) as one, models(name, "a", "b") as (first, second):
        use(monkeypatch, one.address)
        await one.register(first.instance, 10)
        await one.register(second.instance, 300)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: seen == {"a", "b"})
            now[0] += 11
            await until_asked(channel, lambda seen: seen == {"b"})
            now[0] += 300
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await until_asked(channel, lambda seen: False, patient=False)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_name_that_was_unknown_is_found_once_it_registers(
    running: Plane, name: str
) -> None:
    async with (
        grpc.aio.insecure_channel(f"xds:///model.{name}") as channel,
        models(name, "a") as (one,),
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel)
        await running.register(one.instance)
        await until_asked(channel, lambda seen: seen == {"a"})


async def test_affinity_by_header(running: Plane, name: str) -> None:
    async with models(name, "a", "b", "c") as started:
        for one in started:
            await running.register(one.instance)
        async with grpc.aio.insecure_channel(f"xds:///affinity.model.{name}") as channel:
            await until_asked(channel, lambda seen: len(seen) > 1)  # without the header: anywhere
            async with asyncio.timeout(BOUND_S):
                while len({await ask(channel, f"warm-{key}") for key in range(50)}) < 3:
                    pass
            homes = {f"rollout-{key}": await ask(channel, f"rollout-{key}") for key in range(30)}
            assert set(homes.values()) == {"a", "b", "c"}
            for _ in range(3):
                assert {key: await ask(channel, key) for key in homes} == homes
            await running.report("a", pb.HEALTH_DRAINING)
            async with asyncio.timeout(BOUND_S):
                while "a" in {await ask(channel, key) for key in homes}:
                    pass
            # Most of those who were elsewhere stay there; a ring of another size moves some.
            after = {key: await ask(channel, key) for key in homes}
            others = [key for key, home in homes.items() if home != "a"]
            assert sum(after[key] == homes[key] for key in others) > len(others) / 2


async def test_ipv6(running: Plane, name: str) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        require(False, "IPv6", "a loopback address ::1")
    async with models(name, "six", host="::1") as (one,):
        await running.register(one.instance)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: seen == {"six"})


async def test_bad_neighbours_harm_nobody(running: Plane, name: str) -> None:
    async with models(name, "a") as (good,):
        for number, address in enumerate(["unix:/run/x.sock", "no.host:1", "x", "[::1%lo]:1"]):
            bad = pb.Instance(service=good.instance.service, name=name, address=address)
            bad.id = f"bad-{number}"
            await running.register(bad)
        twin = pb.Instance()
        twin.CopyFrom(good.instance)
        twin.id, twin.weight = "twin", 2**32 - 1
        newer = pb.Instance(
            id="newer", service=good.instance.service, name=name, address="127.0.0.1:1",
            contract_version="9.0",
        )  # fmt: skip
        for one in (twin, newer, good.instance):
            await running.register(one)
        async with grpc.aio.insecure_channel(f"xds:///model.{name}") as channel:
            await until_asked(channel, lambda seen: seen == {"a"})
            assert len(running.catalog.problems) == 5


async def test_the_control_plane_goes_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with models(name, "a", "b", "c") as (a, b, c):
        async with plane() as first:
            use(monkeypatch, first.address)
            port = int(first.address.rpartition(":")[2])
            await first.register(a.instance)
            await first.register(b.instance)
            channel = grpc.aio.insecure_channel(
                f"xds:///model.{name}", options=[("grpc.max_reconnect_backoff_ms", 500)]
            )
            await until_asked(channel, lambda seen: seen == {"a", "b"})
        # It is gone: clients go on with what they know.
        assert set(await asked(channel, 40)) == {"a", "b"}
        async with plane(port=port, settle_s=3.0) as second:
            # Nobody has registered there yet, and the clients do not lose anybody for it.
            async with asyncio.timeout(BOUND_S):
                while not second.edge._streams:
                    assert set(await asked(channel, 10)) == {"a", "b"}
                    await asyncio.sleep(0.02)
            if not second.catalog.settled:
                assert set(await asked(channel, 40)) == {"a", "b"}
            await second.register(b.instance)
            await second.register(c.instance)
            await until_asked(channel, lambda seen: seen == {"b", "c"})
        await channel.close()


@pytest.mark.parametrize("prefix", ["", "affinity."])
async def test_an_unknown_name_fails_at_once(running: Plane, name: str, prefix: str) -> None:
    async with grpc.aio.insecure_channel(f"xds:///{prefix}model.{name}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel, timeout=BOUND_S)
        # Not after the 15 seconds that gRPC waits for a resource that does not come.
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert f"model.{name}" in str(caught.value.details())
