"""One stream that all calls to an address share."""

from __future__ import annotations

import asyncio

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.sizes import MIB
from gymmesh_runtime.wire.mux.peer import LARGE_BYTES
from tests.integration.mux.servers import Reason, Server, failure
from tests.unit.runtime.probe import DISCOVERY, MODEL, Probe, instance_at, stream, unary


async def test_all_who_call_one_address_share_one_stream(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe(), DISCOVERY: object()})
    async with server.running() as address:
        model = directory.peer(instance_at(address))
        other = directory.peer(instance_at(address, instance_id="b"))
        discovery = directory.peer(instance_at(address), DISCOVERY)
        calls = [model.CreateResponse(unary("ok"), timeout=60.0) for _ in range(200)]
        calls += [other.CreateResponse(unary("ok"), timeout=60.0) for _ in range(200)]
        await asyncio.gather(*calls)  # the first of which open it
        async for _message in model.StreamResponse(stream("ok"), timeout=60.0):
            pass
        request = discovery_pb2.ListInstancesRequest()
        error = await failure(discovery.ListInstances(request, timeout=60.0))
        assert error.reason == Reason.ERROR_REASON_NOT_OFFERED
        assert len(server.mux._exchanges) == 1


class Crowd:
    """Holds calls until there are enough of them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._all = asyncio.Event()
        self.waiting = 0

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        self.waiting += 1
        if self.waiting == self._count:
            self._all.set()
        await self._all.wait()
        return model_pb2.CreateResponseResponse(call_id=request.request_id)


async def test_ten_thousand_calls_in_flight_on_one_stream(directory: PeerDirectory) -> None:
    crowd = Crowd(10_000)
    server = Server({MODEL: crowd})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        calls = [
            peer.CreateResponse(unary("ok", request_id=f"r-{index}"), timeout=300.0)
            for index in range(10_000)
        ]
        replies = await asyncio.gather(*calls)  # ends only if all were in flight at once
        assert [reply.call_id for reply in replies] == [f"r-{index}" for index in range(10_000)]
        assert len(server.mux._exchanges) == 1


async def test_small_calls_overtake_a_large_one(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        done: list[str] = []

        async def call(name: str, size: int) -> None:
            reply = await peer.CreateResponse(unary("ok", request_id="x" * size), timeout=60.0)
            assert len(reply.call_id) == size
            done.append(name)

        large = asyncio.create_task(call("large", 40 * MIB))
        await asyncio.sleep(0)  # it is the first to send
        for _ in range(20):
            await call("small", 10)
        await large
        assert done[0] == "small"


async def test_a_large_request_goes_by_a_plain_rpc(directory: PeerDirectory) -> None:
    server = Server({MODEL: Probe()})
    async with server.running() as address:
        peer = directory.peer(instance_at(address))
        for size in (LARGE_BYTES + 1, 2 * MIB):
            reply = await peer.CreateResponse(unary("ok", request_id="x" * size), timeout=60.0)
            assert len(reply.call_id) == size
            request = model_pb2.StreamResponseRequest(call=unary("ok", request_id="x" * size))
            assert [one async for one in peer.StreamResponse(request, timeout=60.0)]
        assert not server.mux._exchanges  # nobody has opened one
        await peer.CreateResponse(unary("ok"), timeout=60.0)
        assert len(server.mux._exchanges) == 1
