"""The link is cut: calls that wait, calls that were in flight, and instances that stay away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_relay.config import RelayConfig
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from tests.unit.relay.world import CALL_S, MODEL, Probe, World, world
from tests.unit.runtime.probe import stream, unary, until

Reason = errors_pb2.ErrorReason


class Slow:
    """Answers when it is let; counts what it began and what was cancelled."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = 0
        self.cancelled = 0
        self.answered = 0

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, context: CallContext
    ) -> model_pb2.CreateResponseResponse:
        self.began += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.answered += 1
        return model_pb2.CreateResponseResponse(call_id=request.request_id)


def state(here: World, instance_id: str = "probe-0") -> str:
    found = here.relay._instances.get(instance_id)
    return "" if found is None else found._state


async def cut(here: World, *, refuse: bool = False) -> None:
    """Resets the link, and waits until the relay has seen it."""
    instance = here.relay._instances["probe-0"]
    before = instance._exchange
    here.link.refuse = refuse
    here.link.cut()
    await until(lambda: instance._exchange is not before)


async def reason_of(call: Any) -> int:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason


async def test_calls_wait_for_the_instance_to_come_back() -> None:
    async with world() as here:
        dialer = await here.dial(Probe())
        peer = await here.peer()
        address = dialer.address
        await cut(here, refuse=True)
        calls = [
            asyncio.create_task(peer.CreateResponse(unary("", request_id=str(n)), timeout=CALL_S))
            for n in range(20)
        ]
        with pytest.raises(MeshError) as caught:
            await peer.CreateResponse(unary(""), timeout=0.3)
        assert caught.value.reason == Reason.ERROR_REASON_DEADLINE_PASSED
        assert not any(call.done() for call in calls)
        assert state(here) == "disconnected"
        here.link.heal()
        assert [(await call).call_id for call in calls] == [str(n) for n in range(20)]
        assert dialer.address == address
        assert dialer.offers == 2


async def test_a_call_in_flight_breaks_and_goes_on_at_the_instance() -> None:
    slow = Slow()
    async with world() as here:
        await here.dial(slow)
        peer = await here.peer()
        call = asyncio.create_task(peer.CreateResponse(unary(""), timeout=CALL_S))
        await until(lambda: slow.began == 1)
        await cut(here)
        assert await reason_of(call) == Reason.ERROR_REASON_MUX_BROKEN
        slow.go.set()
        await until(lambda: slow.answered == 1)
        assert slow.cancelled == 0
        await peer.CreateResponse(unary(""), timeout=CALL_S)


async def test_a_stream_that_breaks_ends_at_the_instance() -> None:
    probe = Probe()
    async with world() as here:
        await here.dial(probe)
        responses = (await here.peer()).StreamResponse(stream("hang"), timeout=CALL_S)
        await anext(responses)
        await anext(responses)
        await cut(here)
        assert await reason_of(anext(responses)) == Reason.ERROR_REASON_MUX_BROKEN
        await asyncio.wait_for(probe.closed.wait(), CALL_S)


async def test_an_instance_that_stays_away_is_deregistered() -> None:
    async with world(RelayConfig(grace_s=0.5)) as here:
        await here.dial(Probe())
        peer = await here.peer()
        await cut(here, refuse=True)
        found = await reason_of(peer.CreateResponse(unary(""), timeout=CALL_S))
        assert found == Reason.ERROR_REASON_PEER_UNAVAILABLE
        await until(lambda: not here.directory.serving(MODEL, "policy"))
        assert state(here) == ""
        # It comes back later, at another address.
        here.link.heal()
        await until(lambda: here.directory.serving(MODEL, "policy"))
        await (await here.peer()).CreateResponse(unary(""), timeout=CALL_S)


async def test_an_instance_that_leaves_is_gone_at_once() -> None:
    slow = Slow()
    async with world(RelayConfig(grace_s=3600)) as here:
        dialer = await here.dial(slow)
        peer = await here.peer()
        call = asyncio.create_task(peer.CreateResponse(unary(""), timeout=CALL_S))
        await until(lambda: slow.began == 1)
        leaving = asyncio.create_task(dialer.stop(CALL_S))
        await until(lambda: state(here) == "leaving")
        found = await reason_of(peer.CreateResponse(unary(""), timeout=CALL_S))
        assert found == Reason.ERROR_REASON_DRAINING
        await until(
            lambda: (
                [one.health for one in here.directory.instances() if one.name == "policy"]
                == [discovery_pb2.HEALTH_DRAINING]
            )
        )
        slow.go.set()
        await call
        await leaving
        await until(lambda: state(here) == "")
        await until(lambda: all(one.name != "policy" for one in here.directory.instances()))


async def test_requests_that_wait_have_a_bound() -> None:
    config = RelayConfig(max_waiting_bytes=1024 * 1024)
    async with world(config) as here:
        await here.dial(Probe())
        peer = await here.peer()
        await cut(here, refuse=True)
        large = unary("", request_id="x" * 600_000)
        first = asyncio.create_task(peer.CreateResponse(large, timeout=CALL_S))
        instance = here.relay._instances["probe-0"]
        await until(lambda: instance._waiting_bytes > 600_000)
        found = await reason_of(peer.CreateResponse(large, timeout=CALL_S))
        assert found == Reason.ERROR_REASON_QUEUE_FULL
        here.link.heal()
        await first
        assert instance._waiting_bytes == 0


async def test_the_link_breaks_without_a_word_and_the_instance_dials_again() -> None:
    """The relay still believes in the old connection: the new offer takes its place."""
    slow = Slow()
    async with world() as here:
        dialer = await here.dial(slow)
        peer = await here.peer()
        call = asyncio.create_task(peer.CreateResponse(unary(""), timeout=CALL_S))
        await until(lambda: slow.began == 1)
        before = here.relay._instances["probe-0"]._exchange
        assert dialer._line is not None
        exchange = dialer._line.connection.exchange
        assert exchange is not None
        # Its side ends, and the relay hears nothing.
        exchange.on_leaving()
        exchange._unusable.set()
        exchange.usable = False
        assert await reason_of(call) == Reason.ERROR_REASON_MUX_BROKEN
        assert here.relay._instances["probe-0"]._exchange is not before
        slow.go.set()
        await peer.CreateResponse(unary(""), timeout=CALL_S)


async def test_the_registry_learns_what_changes() -> None:
    said = {"weights_version": "1"}
    async with world() as here:
        dialer = await here.dial(Probe(), meta=said)

        def listed() -> str:
            found = here.directory.serving(MODEL, "policy")
            return found[0].meta["weights_version"] if found else ""

        await until(lambda: listed() == "1")
        said["weights_version"] = "2"
        dialer.meta_changed()
        await until(lambda: listed() == "2")
        await cut(here)
        await until(lambda: state(here) == "connected")
        said["weights_version"] = "3"
        dialer.meta_changed()
        await until(lambda: listed() == "3")


async def test_a_relay_keeps_a_bounded_part_of_what_a_silent_instance_does_not_read() -> None:
    """What waits in the connection is bounded, what waits for it is, and the rest is refused."""
    size, bound = 1024 * 1024, 4 * 1024 * 1024
    async with world(RelayConfig(max_waiting_bytes=bound)) as here:
        await here.dial(Probe())
        peer = await here.peer()
        await peer.CreateResponse(unary(""), timeout=CALL_S)
        here.link.mute()
        large = unary("", request_id="x" * size)
        calls = [
            asyncio.create_task(peer.CreateResponse(large, timeout=CALL_S)) for _ in range(120)
        ]
        await until(lambda: any(call.done() for call in calls))
        instance = here.relay._instances["probe-0"]
        exchange = instance._exchange
        assert exchange is not None
        assert instance._waiting_bytes <= bound
        assert exchange.sender._chunks.size < 70 * 1024 * 1024
        here.link.heal()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in answers if isinstance(one, MeshError)]
        assert {one.reason for one in refused} == {Reason.ERROR_REASON_QUEUE_FULL}
        assert 20 < len(refused) < 100
        assert instance._waiting_bytes == instance._calls == 0
