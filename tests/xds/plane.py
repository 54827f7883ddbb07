"""A control plane, instances of services, and channels that find them, all on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.model.v1 import model_pb2, model_pb2_grpc
from gymmesh.responses.v1 import responses_pb2
from gymmesh_cli.services.xds import document
from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.service import DiscoveryService
from gymmesh_discovery.xds.servicer import XdsEdge
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire.server import MeshServer

MODEL = "gymmesh.model.v1.ModelService"
BOUND_S = 40.0


@dataclass
class Plane:
    """A control plane that runs."""

    address: str
    registry: MemoryRegistry
    edge: XdsEdge
    leases: dict[str, str] = field(default_factory=dict)

    async def register(self, instance: pb.Instance, lease_s: int = 60) -> None:
        self.leases[instance.id], _ = await self.registry.register(instance, lease_s, "")

    async def report(self, instance_id: str, health: Any) -> None:
        await self.registry.renew(self.leases[instance_id], health)

    async def deregister(self, instance_id: str) -> None:
        await self.registry.deregister(self.leases.pop(instance_id))

    @property
    def catalog(self) -> Any:
        assert self.edge._feed is not None
        return self.edge._feed.catalog


@asynccontextmanager
async def plane(
    *, port: int = 0, settle_s: float = 0.0, most_streams: int = 1000, clock: Any = None
) -> AsyncIterator[Plane]:
    registry = MemoryRegistry(clock) if clock is not None else MemoryRegistry()
    edge = XdsEdge(settle_s=settle_s, most_streams=most_streams)
    service = DiscoveryService("registry", registry, edges=[edge])
    options = ServeOptions(metrics_port=None, port=port, drain_s=2.0)
    async with serving(service, options) as served:
        yield Plane(served.instance.address, registry, edge)


class Model:
    """Answers with its id."""

    def __init__(self, instance_id: str, name: str, host: str) -> None:
        self.id = instance_id
        self._name = name
        self._host = host
        self._server = MeshServer([Binding(MODEL, self)])
        self.instance = pb.Instance()

    async def start(self) -> None:
        port = await self._server.start(self._host, 0)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.instance = pb.Instance(
            id=self.id,
            service=MODEL,
            name=self._name,
            address=f"{host}:{port}",
            health=pb.HEALTH_SERVING,
        )

    async def stop(self) -> None:
        await self._server.stop(0)

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: object
    ) -> model_pb2.CreateResponseResponse:
        return model_pb2.CreateResponseResponse(call_id=self.id)


@asynccontextmanager
async def models(name: str, *ids: str, host: str = "127.0.0.1") -> AsyncIterator[list[Model]]:
    started = [Model(one, name, host) for one in ids]
    try:
        for one in started:
            await one.start()
        yield started
    finally:
        for one in started:
            await one.stop()


def use(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Makes a control plane the one of the channels that are opened from now on.

    While a channel of another one lives, if only in the traceback of an error that was expected,
    gRPC goes on with that one's bootstrap.
    """
    gc.collect()
    monkeypatch.setenv("GRPC_XDS_BOOTSTRAP_CONFIG", json.dumps(document(address, "test")))


async def ask(channel: grpc.aio.Channel, affinity: str = "", timeout: float = 10.0) -> str:
    """The id of the instance that answers."""
    call = model_pb2.CreateResponseRequest(params=responses_pb2.ResponseParams(), rollout_id="r")
    metadata = [("gymmesh-affinity", affinity)] if affinity else []
    stub: Any = model_pb2_grpc.ModelServiceStub(channel)
    answer = await stub.CreateResponse(call, timeout=timeout, metadata=metadata)
    return str(answer.call_id)


async def asked(channel: grpc.aio.Channel, times: int) -> Counter[str]:
    """How many calls each instance answers."""
    return Counter([await ask(channel) for _ in range(times)])


async def until_asked(
    channel: grpc.aio.Channel, done: Callable[[set[str]], bool], *, patient: bool = True
) -> None:
    """Until twenty calls in a row go to the right instances.

    ``patient``: a call that finds nobody is no answer; else it is raised.
    """
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                if done(set(await asked(channel, 20))):
                    return
            except grpc.aio.AioRpcError as error:
                if not patient or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.05)


@asynccontextmanager
async def raw_stream(address: str, *, delta: bool = False) -> AsyncIterator[Any]:
    """A stream of bare requests and responses."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        call = (stub.DeltaAggregatedResources if delta else stub.StreamAggregatedResources)()
        try:
            yield call
        finally:
            call.cancel()


def request(type_url: str, names: Sequence[str] = (), **fields: Any) -> Any:
    """A request of the state-of-the-world protocol."""
    return discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names, **fields)


async def ending(call: Any) -> grpc.StatusCode:
    """Reads to the end of a stream; returns its status."""
    try:
        async with asyncio.timeout(BOUND_S):
            while await call.read() is not grpc.aio.EOF:
                pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    code: grpc.StatusCode = await call.code()
    return code


async def read(call: Any) -> Any:
    """The next response."""
    response = await asyncio.wait_for(call.read(), BOUND_S)
    assert response is not grpc.aio.EOF, f"{await call.code()}: {await call.details()}"
    return response
