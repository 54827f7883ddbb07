"""The control plane against bare streams of both protocols, good and hostile."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.rpc import status_pb2

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh_discovery import metrics
from gymmesh_discovery.xds.names import CLUSTER, ENDPOINTS, LISTENER, ROUTE
from gymmesh_runtime.errors import MeshError
from tests.support.scraping import Counted
from tests.unit.runtime.probe import until
from tests.xds.plane import BOUND_S, MODEL, Plane, ending, plane, raw_stream, read, request

pytestmark = pytest.mark.timeout(90)

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"


@pytest.fixture
async def running() -> AsyncIterator[Plane]:
    async with plane() as one:
        yield one


def instance(number: int, **fields: Any) -> pb.Instance:
    usual = {"service": MODEL, "name": "policy", "address": f"127.0.0.1:{number + 1}"}
    return pb.Instance(id=f"i-{number}", **{**usual, **fields})


def ports(response: Any) -> set[int]:
    """The ports of the endpoints in a response with one assignment."""
    [packed] = response.resources
    any_of = packed.resource if isinstance(packed, discovery_pb2.Resource) else packed
    found = endpoint_pb2.ClusterLoadAssignment.FromString(any_of.value)
    return {
        one.endpoint.address.socket_address.port_value
        for place in found.endpoints
        for one in place.lb_endpoints
    }


async def test_the_time_from_a_change_to_its_push_is_counted(running: Plane) -> None:
    counted = Counted()
    name = "gymmesh_xds_push_seconds_count"
    await running.register(instance(0))
    await until(lambda: running.catalog.has_endpoints("model.policy"))
    async with raw_stream(running.address) as call:
        await call.write(request(ENDPOINTS, ["model.policy"]))
        first = await read(call)
        assert counted.of(name) == 0  # what it subscribed to had not changed for it
        await call.write(
            request(
                ENDPOINTS,
                ["model.policy"],
                version_info=first.version_info,
                response_nonce=first.nonce,
            )
        )
        await running.register(instance(1))
        assert len(ports(await read(call))) == 2
        await until(lambda: counted.of(name, type="ClusterLoadAssignment") == 1)


async def test_what_a_client_does_in_order(running: Plane) -> None:
    await running.register(instance(0))
    async with raw_stream(running.address) as call:
        for type_url in (LISTENER, ROUTE, CLUSTER, ENDPOINTS):
            await call.write(request(type_url, ["model.policy"]))
            response = await read(call)
            assert response.type_url == type_url
            assert len(response.resources) == 1
            ack = request(
                type_url,
                ["model.policy"],
                version_info=response.version_info,
                response_nonce=response.nonce,
            )
            await call.write(ack)
        assert ports(response) == {1}
        await running.register(instance(1))
        changed = await read(call)
        assert changed.type_url == ENDPOINTS
        assert ports(changed) == {1, 2}
        assert int(changed.version_info) > int(response.version_info)


async def test_delta(running: Plane) -> None:
    await running.register(instance(0))
    first = discovery_pb2.DeltaDiscoveryRequest(
        type_url=ENDPOINTS, resource_names_subscribe=["model.policy"]
    )
    async with raw_stream(running.address, delta=True) as call:
        await call.write(first)
        response = await read(call)
        assert ports(response) == {1}
        version = response.resources[0].version
        wildcard = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER)
        await call.write(wildcard)
        clusters = await read(call)
        names = [one.name for one in clusters.resources]
        assert names == ["affinity.model.policy", "model.policy"]
        await running.deregister("i-0")
        assert list((await read(call)).removed_resources) == names
        assert ports(await read(call)) == set()
    await running.register(instance(0))
    await until(lambda: running.catalog.has_endpoints("model.policy"))
    async with raw_stream(running.address, delta=True) as call:
        first.initial_resource_versions["model.policy"] = version
        await call.write(first)
        # It has all that there is: told so, and not sent it.
        assert not (await read(call)).resources


async def test_a_nack_is_logged_once_and_counted(
    running: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    before = metrics.XDS_NACKS.labels("ClusterLoadAssignment").value
    await running.register(instance(0))
    words = "bad \x1b[31m\nERROR gymmesh: all is lost " + "x" * 10_000
    async with raw_stream(running.address) as call:
        await call.write(request(ENDPOINTS, ["model.policy"]))
        for number in range(3):
            response = await read(call)
            nack = request(
                ENDPOINTS,
                ["model.policy"],
                response_nonce=response.nonce,
                error_detail=status_pb2.Status(code=3, message=words),
                node=base_pb2.Node(id="\x1b]0;evil\x07" * 1000),
            )
            await call.write(nack)
            await running.register(instance(number + 1))
        await read(call)
    await until(lambda: metrics.XDS_NACKS.labels("ClusterLoadAssignment").value == before + 3)
    said = [one.getMessage() for one in caplog.records if "rejected" in one.getMessage()]
    assert len(said) == 1
    assert r"bad \x1b[31m\nERROR" in said[0]
    assert said[0].isprintable()
    assert len(said[0]) < 700


async def test_an_unknown_type_is_ignored(running: Plane, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with raw_stream(running.address) as call:
        for _ in range(3):
            await call.write(request("type.googleapis.com/acme.\x1bSecret", ["x"]))
        await call.write(request(LISTENER, ["nonsense", "model.policy"]))
        response = await read(call)
        assert response.type_url == LISTENER
        assert len(response.resources) == 1
    said = [one.getMessage() for one in caplog.records if "acme" in one.getMessage()]
    assert len(said) == 1
    assert said[0].isprintable()


async def test_too_many_names_end_the_stream(running: Plane) -> None:
    async with raw_stream(running.address) as call:
        await call.write(request(LISTENER, [f"model.{number}" for number in range(10_001)]))
        assert await ending(call) is grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: running.edge._streams == 0)


async def test_bytes_that_are_no_request_end_the_stream(running: Plane) -> None:
    method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
    async with grpc.aio.insecure_channel(running.address) as channel:
        call: Any = channel.stream_stream(method)()
        await call.write(b"\xff\xff\xff")
        assert await ending(call) is grpc.StatusCode.INVALID_ARGUMENT
    await until(lambda: running.edge._streams == 0)


async def test_streams_are_bounded_and_forgotten() -> None:
    async with plane(most_streams=2) as one:
        async with raw_stream(one.address) as first, raw_stream(one.address) as second:
            for call in (first, second):
                await call.write(request(LISTENER, ["model.policy"]))
                await read(call)
            async with raw_stream(one.address) as third:
                assert await ending(third) is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert one.edge._streams == 2
        await until(lambda: one.edge._streams == 0)
        assert one.edge._feed is not None
        assert not one.edge._feed.streams


async def test_streams_end_when_the_control_plane_does() -> None:
    async with plane() as one:
        async with raw_stream(one.address) as call:
            await call.write(request(LISTENER, ["model.policy"]))
            await read(call)
            one.edge.drain()
            assert await ending(call) is grpc.StatusCode.UNAVAILABLE
        async with raw_stream(one.address) as late:
            assert await ending(late) is grpc.StatusCode.UNAVAILABLE


async def test_who_does_not_read_is_sent_the_newest_state_in_the_end(running: Plane) -> None:
    async with raw_stream(running.address) as slow, raw_stream(running.address) as quick:
        for call in (slow, quick):
            await call.write(request(ENDPOINTS, ["model.policy"]))
        await read(quick)
        for number in range(3000):
            await running.register(instance(number))
        for call in (quick, slow):
            async with asyncio.timeout(BOUND_S):
                while len(ports(await call.read())) < 3000:
                    pass


async def test_an_instance_that_cannot_be_offered_is_named_once(
    running: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    await running.register(instance(0, address="unix:/run/x.sock"))
    for number in range(1, 20):
        await running.register(instance(number))
        await asyncio.sleep(0.01)
    await until(lambda: any("unix:/run/x.sock" in one.getMessage() for one in caplog.records))
    await asyncio.sleep(0.2)
    said = [one.getMessage() for one in caplog.records if "not offered" in one.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("the instance i-0 ")


@pytest.mark.parametrize("method", ["StreamAggregatedResources", "DeltaAggregatedResources"])
async def test_a_refused_request_is_not_held_by_its_error(method: str) -> None:
    """It may be large. Without the garbage collection that would break cycles up some day."""

    def errors() -> int:
        return sum(type(one) is MeshError for one in gc.get_objects())

    gc.collect()
    gc.disable()
    before = errors()  # what other tests have
    try:
        async with plane() as control, grpc.aio.insecure_channel(control.address) as channel:
            untyped: Any = channel
            for _ in range(5):
                call = untyped.stream_stream(f"/{ADS}/{method}")(iter([b"\x0a\xff"]))
                assert await ending(call) is grpc.StatusCode.INVALID_ARGUMENT
            await until(lambda: errors() <= before)
    finally:
        gc.enable()
