"""What a process calls over several links waits for company together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.wire.batch import BatchLimits
from gymmesh_runtime.wire.mux.calling import call_stream, call_unary
from gymmesh_runtime.wire.mux.exchange import Exchange, InFlight
from gymmesh_runtime.wire.mux.frames import UnaryAnswer
from tests.unit.runtime.exchange_ends import STREAM, UNARY, Hand, end_of, first_of
from tests.unit.runtime.probe import stream, unary

MANY = 10**9  # so many that a frame would wait for hours
ENDLESS = BatchLimits(delay_s=10_000.0)


def ask(exchange: Exchange, timeout: float = 20.0) -> asyncio.Task[Any]:
    return asyncio.create_task(call_unary(exchange, UNARY, unary("ok"), timeout, {}))


@pytest.mark.parametrize(("elsewhere", "waits"), [(0, False), (MANY, True)])
async def test_calls_over_other_links_count(elsewhere: int, waits: bool) -> None:
    in_flight, hand = InFlight(), Hand()
    in_flight.calls = elsewhere
    async with end_of(hand, opener=True, batching=ENDLESS, in_flight=in_flight) as (exchange, _):
        calls = [ask(exchange)]
        await hand.get()  # the first finds a quiet exchange
        calls.append(ask(exchange))
        if waits:
            assert await hand.quiet()
        else:
            await hand.get()
    assert len(await asyncio.gather(*calls, return_exceptions=True)) == 2


async def test_a_call_is_in_the_crowd_until_it_ends_however_it_does() -> None:
    in_flight = InFlight()
    async with AsyncExitStack() as stack:
        hands = [Hand(), Hand()]
        first, second = [
            (await stack.enter_async_context(end_of(hand, opener=True, in_flight=in_flight)))[0]
            for hand in hands
        ]
        answered, cancelled = ask(first), ask(second)
        reading = first_of(call_stream(first, STREAM, stream("x"), 20.0, {}))
        for hand in (hands[0], hands[0], hands[1]):
            await hand.get()
        overdue = ask(second, 0.05)
        await asyncio.sleep(0)  # it begins, and its time cannot be up in the same turn of the loop
        assert in_flight.calls == 4
        hands[0].send(UnaryAnswer(1, b""))
        await answered
        cancelled.cancel()
        with pytest.raises(MeshError):
            await overdue
        reading.cancel()
        await asyncio.gather(cancelled, reading, return_exceptions=True)
    assert in_flight.calls == 0
