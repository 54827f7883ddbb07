"""Calls through a relay behave as calls of the instance itself, on both transports."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_relay.config import RelayConfig
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import TransportName
from tests.unit.relay.world import CALL_S, Probe, world
from tests.unit.runtime.probe import stream, unary, until

Reason = errors_pb2.ErrorReason
transports = pytest.mark.parametrize("transport", ["auto", "plain"])


@transports
async def test_unary_calls_and_streams_arrive(transport: TransportName) -> None:
    probe = Probe()
    async with world(transport=transport) as here:
        await here.dial(probe)
        peer = await here.peer()
        reply = await peer.CreateResponse(
            unary("", request_id="r-1"), timeout=CALL_S, metadata={"x-own": "1"}
        )
        assert reply.call_id == "r-1"
        frames = [one async for one in peer.StreamResponse(stream(""), timeout=CALL_S)]
        assert [one.delta.output_index for one in frames] == [0, 1, 2]
    context = probe.contexts[0]
    assert context.metadata["x-own"] == "1"
    assert context.identity == ""
    assert 0 < context.time_remaining() <= CALL_S + 1  # gRPC rounds up


@transports
async def test_errors_keep_their_details(transport: TransportName) -> None:
    async with world(transport=transport) as here:
        await here.dial(Probe())
        peer = await here.peer()
        with pytest.raises(MeshError) as caught:
            await peer.CreateResponse(unary("typed"), timeout=CALL_S)
        assert caught.value.reason == Reason.ERROR_REASON_QUEUE_FULL
        assert caught.value.metadata == {"queue": "model", "limit": "4096"}
        assert caught.value.retry_after_s == 1.5
        with pytest.raises(MeshError) as caught:
            async for _ in peer.StreamResponse(stream("typed"), timeout=CALL_S):
                pass
        assert caught.value.reason == Reason.ERROR_REASON_QUEUE_FULL
        with pytest.raises(MeshError) as caught:
            await peer.GetModel(model_pb2.GetModelRequest(), timeout=CALL_S)
        assert caught.value.reason == Reason.ERROR_REASON_NOT_OFFERED


@transports
async def test_cancellations_and_deadlines_reach_the_instance(transport: TransportName) -> None:
    probe = Probe()
    async with world(transport=transport) as here:
        await here.dial(probe)
        peer = await here.peer()
        call = asyncio.create_task(peer.CreateResponse(unary("hang"), timeout=CALL_S))
        await asyncio.wait_for(probe.started.wait(), CALL_S)
        call.cancel()
        await asyncio.wait_for(probe.cancelled.wait(), CALL_S)
        with pytest.raises(MeshError) as caught:
            await peer.CreateResponse(unary("hang"), timeout=0.2)
        assert caught.value.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        probe.closed.clear()
        async with aclosing(peer.StreamResponse(stream("drip"), timeout=CALL_S)) as responses:
            async for _ in responses:
                break
        await asyncio.wait_for(probe.closed.wait(), CALL_S)


async def test_large_messages_pass_both_ways() -> None:
    class Echo:
        async def CreateResponse(
            self, request: model_pb2.CreateResponseRequest, context: CallContext
        ) -> model_pb2.CreateResponseResponse:
            return model_pb2.CreateResponseResponse(call_id=request.request_id)

    async with world() as here:
        await here.dial(Echo())
        peer = await here.peer()
        text = "x" * 20_000_000
        reply = await peer.CreateResponse(unary("", request_id=text), timeout=CALL_S)
        assert reply.call_id == text


async def test_a_flood_waits_for_its_reader() -> None:
    """A stream that nobody reads stops at the instance: the credit of each hop is used up."""

    class Flood:
        sent = 0

        async def StreamResponse(
            self, request: model_pb2.StreamResponseRequest, context: CallContext
        ) -> Any:
            while True:
                self.sent += 1
                yield model_pb2.StreamResponseResponse(
                    delta=model_pb2.ResponseDelta(text=b"x" * 10_000)
                )

    flood = Flood()
    async with world() as here:
        await here.dial(flood)
        peer = await here.peer()
        async with aclosing(peer.StreamResponse(stream(""), timeout=CALL_S)) as responses:
            await anext(responses)
            before = -1
            while before != flood.sent:
                before = flood.sent
                await asyncio.sleep(0.2)
            assert flood.sent < 400
            for _ in range(1000):
                await anext(responses)


async def test_calls_beyond_the_limit_are_refused() -> None:
    probe = Probe()
    async with world(RelayConfig(max_calls=3)) as here:
        await here.dial(probe)
        peer = await here.peer()
        calls = [
            asyncio.create_task(peer.CreateResponse(unary("hang"), timeout=CALL_S))
            for _ in range(3)
        ]
        await until(lambda: len(probe.requests) == 3)
        with pytest.raises(MeshError) as caught:
            await peer.CreateResponse(unary(""), timeout=CALL_S)
        assert caught.value.reason == Reason.ERROR_REASON_QUEUE_FULL
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: not here.relay._instances["probe-0"]._calls)
        await peer.CreateResponse(unary(""), timeout=CALL_S)
